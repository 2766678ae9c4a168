//! A file's attributes (filexfer-02 §5): each group has a flag that shows whether it is present.
//! The integers and strings of SSH that packets consist of (RFC 4251 §5).

const SIZE: u32 = 1;
const OWNER: u32 = 2;
const PERMISSIONS: u32 = 4;
const TIMES: u32 = 8;
const EXTENDED: u32 = 0x8000_0000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attrs {
    /// Size, in bytes.
    pub size: Option<u64>,
    /// User and group id.
    pub owner: Option<(u32, u32)>,
    /// `st_mode`, file type included; from a client, the bits that it may set.
    pub permissions: Option<u32>,
    /// Times of last access and modification, in seconds since 1970.
    pub times: Option<(u32, u32)>,
}

impl Attrs {
    /// Reads attributes. Skips extended ones, and ignores flags unknown to version 3, as OpenSSH
    /// does. Of the mode, keeps only the bits in `modes`.
    pub(super) fn read(reader: &mut Reader<'_>, modes: u32) -> Option<Self> {
        let flags = reader.u32()?;
        let mut attrs = Self::default();
        if flags & SIZE != 0 {
            attrs.size = Some(reader.u64()?);
        }
        if flags & OWNER != 0 {
            attrs.owner = Some((reader.u32()?, reader.u32()?));
        }
        if flags & PERMISSIONS != 0 {
            attrs.permissions = Some(reader.u32()? & modes);
        }
        if flags & TIMES != 0 {
            attrs.times = Some((reader.u32()?, reader.u32()?));
        }
        if flags & EXTENDED != 0 {
            // Each attribute takes at least eight bytes, so the frame's length bounds the loop.
            for _ in 0..reader.u32()? {
                reader.string()?;
                reader.string()?;
            }
        }
        Some(attrs)
    }

    pub(super) fn flags(&self) -> u32 {
        let flag = |is: bool, flag| if is { flag } else { 0 };
        flag(self.size.is_some(), SIZE)
            | flag(self.owner.is_some(), OWNER)
            | flag(self.permissions.is_some(), PERMISSIONS)
            | flag(self.times.is_some(), TIMES)
    }
}

/// Takes big-endian integers and length-prefixed strings off the front; `None` if too short.
#[derive(Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    pub(super) fn string(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.u32()?).ok()?;
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}
