//! Encoding and decoding of SFTP version 3 (draft-ietf-secsh-filexfer-02): packets, attributes,
//! errors. All input is checked; there is no I/O.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use anyhow::{Context, Result, bail};

/// Packet types, named as in draft-ietf-secsh-filexfer-02.
pub mod kind {
    pub const INIT: u8 = 1;
    pub const VERSION: u8 = 2;
    pub const OPEN: u8 = 3;
    pub const CLOSE: u8 = 4;
    pub const READ: u8 = 5;
    pub const WRITE: u8 = 6;
    pub const LSTAT: u8 = 7;
    pub const FSTAT: u8 = 8;
    pub const SETSTAT: u8 = 9;
    pub const FSETSTAT: u8 = 10;
    pub const OPENDIR: u8 = 11;
    pub const READDIR: u8 = 12;
    pub const REMOVE: u8 = 13;
    pub const MKDIR: u8 = 14;
    pub const RMDIR: u8 = 15;
    pub const REALPATH: u8 = 16;
    pub const STAT: u8 = 17;
    pub const READLINK: u8 = 19;
    pub const SYMLINK: u8 = 20;
    pub const STATUS: u8 = 101;
    pub const HANDLE: u8 = 102;
    pub const DATA: u8 = 103;
    pub const NAME: u8 = 104;
    pub const ATTRS: u8 = 105;
    pub const EXTENDED: u8 = 200;
    pub const EXTENDED_REPLY: u8 = 201;
}

/// Flags of OPEN, named as in the draft.
pub mod open {
    pub const READ: u32 = 1;
    pub const WRITE: u32 = 2;
    pub const CREATE: u32 = 8;
    pub const TRUNCATE: u32 = 16;
}

/// End of a file or directory.
pub const END: u32 = 1;
pub const NO_SUCH_FILE: u32 = 2;
pub const PERMISSION_DENIED: u32 = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// `SSH_FX_*`.
    pub code: u32,
    pub message: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self.code {
            1 => "end of file",
            2 => "no such file or directory",
            3 => "permission denied",
            4 => "failure",
            8 => "not supported",
            _ => "error",
        };
        // Servers repeat the code in the system's or Go's wording.
        let message = self.message.split(" (os error ").next().unwrap_or_default();
        match message.to_ascii_lowercase().as_str() {
            "" => write!(out, "{words}"),
            same if same == words || SYNONYMS.contains(&same) => write!(out, "{words}"),
            _ => write!(out, "{words}: {message}"),
        }
    }
}

/// Texts that say no more than codes 1 to 4.
const SYNONYMS: [&str; 4] = ["eof", "file does not exist", "no such file", "failure"];

impl std::error::Error for Refused {}

/// Attributes; `None` if the packet does not contain them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attrs {
    pub size: Option<u64>,
    pub owner: Option<(u32, u32)>,
    /// Type and permissions.
    pub mode: Option<u32>,
    /// Access and modification time, in seconds since 1970.
    pub times: Option<(u32, u32)>,
}

/// The file type's bits of a mode.
const TYPE: u32 = 0o170_000;

impl Attrs {
    pub fn is_directory(&self) -> bool {
        self.is(0o040_000)
    }

    pub fn is_link(&self) -> bool {
        self.is(0o120_000)
    }

    pub fn is_file(&self) -> bool {
        self.is(0o100_000)
    }

    fn is(&self, kind: u32) -> bool {
        self.mode.is_some_and(|mode| mode & TYPE == kind)
    }

    /// Returns each attribute alone, as Go's client sends changes: the server of Debian's lxd-agent
    /// 5.0.2 reads several in the wrong order. The owner comes before the mode, because chown
    /// clears setuid and setgid.
    pub fn one_by_one(&self) -> impl Iterator<Item = Self> {
        let Self { size, owner, mode, times } = *self;
        let none = Self::default();
        let (size, owner) = (Self { size, ..none }, Self { owner, ..none });
        let (mode, times) = (Self { mode, ..none }, Self { times, ..none });
        [size, owner, mode, times].into_iter().filter(move |attrs| *attrs != none)
    }

    pub fn permissions(&self) -> Option<u32> {
        self.mode.map(|mode| mode & 0o7777)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    pub fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn bytes(mut self, bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        // All callers pass pieces far below this limit.
        self = self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn path(self, path: impl AsRef<OsStr>) -> Self {
        self.bytes(path.as_ref().as_bytes())
    }

    pub fn attrs(mut self, attrs: &Attrs) -> Self {
        let bit = |is_there: bool, bit: u32| if is_there { bit } else { 0 };
        self = self.u32(
            bit(attrs.size.is_some(), 1)
                | bit(attrs.owner.is_some(), 2)
                | bit(attrs.mode.is_some(), 4)
                | bit(attrs.times.is_some(), 8),
        );
        if let Some(size) = attrs.size {
            self = self.u64(size);
        }
        if let Some((first, second)) = attrs.owner {
            self = self.u32(first).u32(second);
        }
        if let Some(mode) = attrs.mode {
            self = self.u32(mode);
        }
        if let Some((first, second)) = attrs.times {
            self = self.u32(first).u32(second);
        }
        self
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).context("a packet is too short")?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_be_bytes(self.take(4)?.try_into()?))
    }

    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_be_bytes(self.take(8)?.try_into()?))
    }

    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let count = usize::try_from(self.u32()?)?;
        self.take(count)
    }

    pub fn path(&mut self) -> Result<OsString> {
        Ok(OsString::from_vec(self.bytes()?.to_vec()))
    }

    pub fn text(&mut self) -> Result<String> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    pub fn attrs(&mut self) -> Result<Attrs> {
        let flags = self.u32()?;
        let mut attrs = Attrs::default();
        if flags & 1 != 0 {
            attrs.size = Some(self.u64()?);
        }
        if flags & 2 != 0 {
            attrs.owner = Some((self.u32()?, self.u32()?));
        }
        if flags & 4 != 0 {
            attrs.mode = Some(self.u32()?);
        }
        if flags & 8 != 0 {
            attrs.times = Some((self.u32()?, self.u32()?));
        }
        if flags & 0x8000_0000 != 0 {
            for _ in 0..self.u32()? {
                self.bytes()?;
                self.bytes()?;
            }
        }
        Ok(attrs)
    }

    /// Reads a status. Old servers omit the text.
    pub fn status(&mut self) -> Result<Refused> {
        let code = self.u32()?;
        let message = if self.0.is_empty() { String::new() } else { self.text()? };
        Ok(Refused { code, message })
    }

    pub fn end(&self) -> Result<()> {
        if !self.0.is_empty() {
            bail!("a packet has {} bytes too many", self.0.len());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_combinations_of_attributes_read_back() {
        for bits in 0..16u32 {
            let has = |bit: u32| bits & bit != 0;
            let attrs = Attrs {
                size: has(1).then_some(u64::MAX - 1),
                owner: has(2).then_some((1, 2)),
                mode: has(4).then_some(0o100_644),
                times: has(8).then_some((3, 4)),
            };
            let bytes = Writer::default().attrs(&attrs).0;
            let mut reader = Reader(&bytes);
            assert_eq!(reader.attrs().unwrap(), attrs);
            reader.end().unwrap();
            for cut in 0..bytes.len() {
                assert!(Reader(&bytes[..cut]).attrs().is_err(), "{bits} cut at {cut}");
            }
        }
    }

    #[test]
    fn does_not_repeat_text_in_an_error() {
        let refused =
            |code: u32, message: &str| Refused { code, message: message.to_owned() }.to_string();
        let missing = "no such file or directory";
        assert_eq!(refused(2, "No such file or directory (os error 2)"), missing);
        assert_eq!(refused(2, "file does not exist"), missing);
        assert_eq!(refused(2, ""), missing);
        assert_eq!(refused(3, "Permission denied (os error 13)"), "permission denied");
        assert_eq!(refused(4, "Directory not empty (os error 39)"), "failure: Directory not empty");
        assert_eq!(refused(4, "Failure"), "failure");
    }

    #[test]
    fn rejects_a_length_beyond_the_packet() {
        assert!(Reader(&[0, 0, 0, 2, 1]).bytes().is_err());
        assert!(Reader(&[0xff, 0xff, 0xff, 0xff]).bytes().is_err());
        assert_eq!(Reader(&[0, 0, 0, 0]).bytes().unwrap(), b"");
    }
}
