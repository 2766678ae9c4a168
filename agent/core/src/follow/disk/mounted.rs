//! A line of `/proc/self/mountinfo` (proc(5)).

use crate::report::proc::words;

/// What is mounted there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mounted<'l> {
    /// Number of the device, such as `8:2`.
    pub device: &'l [u8],
    /// Mount point, escaped.
    pub point: &'l [u8],
    /// File system type.
    pub kind: &'l [u8],
    /// What was mounted, such as `/dev/sda2`.
    pub source: &'l [u8],
    /// Whether it can be written, by this mount.
    pub is_writable: bool,
}

impl<'l> Mounted<'l> {
    /// Parses a line.
    #[must_use]
    pub fn parse(line: &'l [u8]) -> Option<Self> {
        let mut fields = [&b""[..]; 6];
        let mut all = words(line);
        for field in &mut fields {
            *field = all.next()?;
        }
        let [_, _, device, _, point, options] = fields;
        while all.next()? != b"-" {}
        let (kind, source, of_all) = (all.next()?, all.next()?, all.next()?);
        let is_writable = options.starts_with(b"rw") && of_all.starts_with(b"rw");
        Some(Self { device, point, kind, source, is_writable })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_with_their_device() {
        let line =
            b"29 1 8:2 / /a\\040b rw,relatime shared:1 master:2 - ext4 /dev/sda2 rw,errors=remount-ro";
        let found = Mounted::parse(line).unwrap();
        let (device, point, kind) = (&b"8:2"[..], &b"/a\\040b"[..], &b"ext4"[..]);
        let expected = Mounted { device, point, kind, source: b"/dev/sda2", is_writable: true };
        assert_eq!(found, expected);
        for (line, is_writable) in [
            (&b"29 1 8:2 / / ro - xfs /dev/root rw"[..], Some(false)),
            (b"29 1 8:2 / / rw - xfs /dev/root ro,seclabel", Some(false)),
            (b"29 1 8:2 / / rw - xfs ", None),
            (b"29 1 8:2 / / rw xfs /dev/root rw", None),
            (b"", None),
        ] {
            assert_eq!(Mounted::parse(line).map(|mounted| mounted.is_writable), is_writable);
        }
    }
}
