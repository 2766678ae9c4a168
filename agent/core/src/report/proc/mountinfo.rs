//! A line of `/proc/self/mountinfo` (proc(5)).

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mounted<'l> {
    pub id: &'l [u8],
    /// Number of the device, such as `8:2`.
    pub device: &'l [u8],
    /// Mount point, escaped.
    pub point: &'l [u8],
    pub kind: &'l [u8],
    /// Mounted device or source, such as `/dev/sda2`, escaped.
    pub source: &'l [u8],
    pub is_writable: bool,
    /// Options of the file system, common to all its mounts.
    pub common: &'l [u8],
}

impl<'l> Mounted<'l> {
    #[inline(never)] // its size
    pub fn parse(line: &'l [u8]) -> Option<Self> {
        let mut fields = [&b""[..]; 10];
        let mut free = fields.iter_mut();
        // A field may be empty, so single spaces separate them.
        for word in line.split(|byte| *byte == b' ') {
            // A dash ends the optional fields.
            if free.len() == 4 && word != b"-" {
                continue;
            }
            let Some(field) = free.next() else { break };
            *field = word;
        }
        let is_whole = free.len() == 0;
        let [id, _, device, _, point, options, _, kind, source, common] = fields;
        let is_writable = common.starts_with(b"rw") && options.starts_with(b"rw");
        is_whole.then_some(Self { id, device, point, kind, source, is_writable, common })
    }
}

/// Returns whether a path leads through a mount at this point; both are escaped.
#[inline(never)] // its size
pub fn is_over(point: &[u8], path: &[u8]) -> bool {
    let rest = path.strip_prefix(point);
    rest.is_some_and(|rest| matches!(rest, [] | [b'/', ..]) || point == b"/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_mounts_with_their_device() {
        let line =
            b"29 1 8:2 / /a\\040b rw,relatime shared:1 master:2 - ext4 /dev/sda2 rw,errors=remount-ro";
        let expected = Mounted {
            id: b"29",
            device: b"8:2",
            point: b"/a\\040b",
            kind: b"ext4",
            source: b"/dev/sda2",
            is_writable: true,
            common: b"rw,errors=remount-ro",
        };
        assert_eq!(Mounted::parse(line), Some(expected));
        for (line, is_writable) in [
            (&b"29 1 8:2 / / ro - xfs /dev/root rw"[..], Some(false)),
            (b"29 1 8:2 / / rw - xfs /dev/root ro,seclabel", Some(false)),
            (b"29 1 8:2 / / rw - tmpfs  rw more", Some(true)),
            (b"29 1 8:2 / / rw - xfs ", None),
            (b"29 1 8:2 / / rw xfs /dev/root rw", None),
            (b"", None),
        ] {
            let found = Mounted::parse(line).map(|mounted| mounted.is_writable);
            assert_eq!(found, is_writable, "{}", line.escape_ascii());
        }
    }
}
