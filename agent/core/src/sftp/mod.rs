//! SFTP version 3, sans-IO: parses requests and writes replies. The shell executes the requests
//! (`mote-agent sftp-server`).
//!
//! The protocol is draft-ietf-secsh-filexfer-02, with the extensions of OpenSSH's file PROTOCOL and
//! its order of SYMLINK's arguments. File contents are not copied: data is a slice of its frame, or
//! is read directly into the reply.

pub mod attrs;
pub mod frame;
#[cfg(feature = "alloc")]
pub mod handles;
pub mod longname;
pub mod reply;
pub mod request;

/// Longest packet accepted, bytes, without its length field. OpenSSH accepts 256 KiB; some clients
/// send 256 KiB of data and their fields on top. Beyond it the session ends.
pub const PACKET: usize = 260 * 1024;
/// Longest data of one reply to READ, bytes, as in OpenSSH. A longer request gets a short read,
/// which clients must expect.
pub const DATA: usize = 255 * 1024;
/// Buffer that any reply fits in, bytes.
pub const REPLY: usize = 256 * 1024;
/// Buffer for any reply except to READ and READDIR, bytes: a path of 4 KiB twice (REALPATH).
pub const SMALL_REPLY: usize = 12 * 1024;
/// Most open handles of one session, 1 MiB of table; fewer if the descriptor limit is lower. Beyond
/// it OPEN and OPENDIR fail.
pub const HANDLES: usize = 65_536;
/// Bits of a mode that a client can set: all except the file's type.
pub const MODES: u32 = 0o7777;
/// The same without set-user-id, set-group-id and the sticky bit.
pub const PLAIN_MODES: u32 = 0o777;
/// Kernel directory entries read for one reply to READDIR, bytes. An entry of 24 bytes becomes at
/// most 150 in the reply, so the reply always fits in [`REPLY`].
pub const LISTING: usize = 16 * 1024;
