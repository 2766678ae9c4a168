//! SFTP version 3 as bytes: requests in, replies out, nothing done. What is done with them is the
//! shell's (`mote-agent sftp-server`).
//!
//! The protocol is draft-ietf-secsh-filexfer-02, with the extensions that OpenSSH's file PROTOCOL
//! describes and with its order of SYMLINK's arguments. Nothing here copies file contents: data is a
//! slice of the frame it came in, or is read straight into the reply.

pub mod attrs;
pub mod frame;
pub mod longname;
pub mod reply;
pub mod request;
mod wire;

/// Longest packet taken, bytes after its length. OpenSSH takes 256 KiB; some clients put a whole
/// 256 KiB of data into one and the rest on top. Over it: the session ends, as the frame is lost.
pub const PACKET: usize = 260 * 1024;
/// Longest data of one reply to READ, bytes, as OpenSSH's. Asked for more: a short read, which
/// clients must expect.
pub const DATA: usize = 255 * 1024;
/// Room that any reply fits in, bytes.
pub const REPLY: usize = 256 * 1024;
/// Room that any reply fits in but to READ and READDIR, bytes: a path of 4 KiB twice (REALPATH).
pub const SMALL_REPLY: usize = 12 * 1024;
/// Most open handles of one session. OPEN and OPENDIR fail beyond.
pub const HANDLES: usize = 128;
/// A directory is listed in pieces of this many bytes of the kernel's own entries: an entry of 24
/// bytes becomes one of at most 150 in the reply, so a piece always fits.
pub const LISTING: usize = 16 * 1024;
