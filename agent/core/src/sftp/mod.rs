//! SFTP version 3, sans-IO: parses requests and writes replies. The shell executes the requests
//! (`mote-agent sftp-server`).
//!
//! The protocol is draft-ietf-secsh-filexfer-02, with the extensions of OpenSSH's file PROTOCOL and
//! its order of SYMLINK's arguments. File contents are not copied: data is a slice of its frame, or
//! is read directly into the reply.

pub mod attrs;
#[cfg(feature = "alloc")]
pub mod handles;
pub mod longname;
pub mod reply;
pub mod request;

/// Maximum size of an accepted packet, in bytes, without its length field. OpenSSH accepts 256 KiB;
/// some clients send 256 KiB of data plus the fields. A longer packet ends the session.
pub const PACKET: usize = 260 * 1024;
/// Maximum data in a reply to READ, in bytes, as in OpenSSH. A longer request gets a short read,
/// which clients must expect.
pub const DATA: usize = 255 * 1024;
/// Size of a buffer that fits any reply, in bytes.
pub const REPLY: usize = 256 * 1024;
/// Size of the buffer for other replies than to READ and READDIR, in bytes: a path of 4 KiB twice.
pub const SMALL_REPLY: usize = 12 * 1024;
/// Maximum number of open handles of one session, a table of 1 MiB; fewer if the descriptor limit
/// is lower. Beyond it OPEN and OPENDIR fail.
pub const HANDLES: usize = 65_536;
/// Bits of a mode that a client can set: all except the file's type.
pub const MODES: u32 = 0o7777;
/// Bits of a mode without set-user-ID, set-group-ID and the sticky bit.
pub const PLAIN_MODES: u32 = 0o777;
/// Kernel directory entries read for one reply to READDIR, in bytes. An entry of 24 bytes becomes
/// at most 150 in the reply, so the reply always fits in [`REPLY`].
pub const LISTING: usize = 16 * 1024;

/// A packet's length is zero or over [`PACKET`]: the session must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLength;

/// Returns the size of the frame at the front, in bytes, including its length field; `None` if that
/// field is incomplete. Errors: [`BadLength`] if the field is zero or over [`PACKET`].
pub fn frame_length(bytes: &[u8]) -> Result<Option<usize>, BadLength> {
    let Some((length, _)) = bytes.split_first_chunk() else { return Ok(None) };
    match usize::try_from(u32::from_be_bytes(*length)) {
        Ok(length @ 1..=PACKET) => Ok(Some(4 + length)),
        _ => Err(BadLength),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_exact_to_the_byte() {
        let of = |length: usize| frame_length(&u32::try_from(length).unwrap().to_be_bytes());
        let all = [1, PACKET, 0, PACKET + 1, 0xffff_ffff].map(of);
        let bad = Err(BadLength);
        assert_eq!(all, [Ok(Some(5)), Ok(Some(PACKET + 4)), bad, bad, bad]);
        assert_eq!(frame_length(b"\xff\xff\xff"), Ok(None));
        assert_eq!(frame_length(b"\0\0\0\x05then whatever"), Ok(Some(9)));
    }
}
