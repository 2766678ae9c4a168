//! Limits on one message of a peer (the host, a client in the guest, the status port): its size,
//! counts and depth, and the time until it is complete. Each limit states its unit, its reason, and
//! what happens beyond it.
//!
//! Every other size, period and deadline is a named constant with its reason, at the top of the
//! file that applies it: the status channel's in `status/pace.rs`, those of exec in `hostapi/exec`,
//! and so on.

use core::time::Duration;

/// Maximum size of a request or response head, in bytes. Go's default is 1 MiB; no known client
/// sends 2 KiB. Beyond it, a client gets 431 and a call to the host fails.
pub const HEAD: usize = 8 * 1024;
/// Maximum number of header fields, which are on the stack. Beyond it: as for [`HEAD`].
pub const HEADERS: usize = 48;
/// Maximum size of a guest client's request body, in bytes; a storage volume's config is the
/// largest real one. Longer bodies from the host need admission. Beyond it: 413 and disconnection.
pub const BODY: usize = 64 * 1024;
/// Maximum size of a host request's body, in bytes; only exec may exceed it. Beyond it: 413.
pub const HOST_BODY: usize = 1024 * 1024;
/// Maximum size of a host request's body that needs no share of [`HOST_MEMORY`], in bytes; nearly
/// all are shorter. A longer one waits for its share.
pub const HOST_SHORT: usize = 8 * 1024;
/// Maximum size of an exec request's body, in bytes: Linux takes 2 MiB of arguments and environment
/// by default; the rest is for JSON's quotes and some escapes. Beyond it: 413.
pub const EXEC_BODY: usize = 3 * 1024 * 1024;
/// Memory that host requests may occupy for long, in bytes: their long bodies while they are
/// received, commands until they are started, the metadata of operations and lists of them. Large
/// enough for one command of the 2 MiB that Linux accepts, both as JSON and parsed. Beyond it, a
/// request waits for up to 3 s, then gets 503.
pub const HOST_MEMORY: usize = 4 * 1024 * 1024 + 96 * 1024;
/// Total size of events that some listener has not read yet, in bytes; one of [`HOST_BODY`] fits.
/// Beyond it, a new event waits for 1 s; then mote drops the listeners with the oldest event.
pub const EVENTS: usize = HOST_BODY + 256 * 1024;
/// Maximum size, in bytes, of a JSON answer from the host held in memory; a single config value may
/// be an entire cloud-init user-data document. Beyond it, the call fails. Streams (image export)
/// are forwarded piece by piece.
pub const HOST_REPLY: usize = 2 * 1024 * 1024;
/// Maximum size, in bytes, of a host answer that can be held next to others. While a longer one is
/// held, another `GET` of a guest waits and is then repeated; other requests fail.
pub const SHORT_REPLY: usize = 16 * 1024;
/// Maximum depth of JSON nesting, in levels: the open brackets are kept as bits of one number.
/// Beyond it, a request gets 400, and a call to the host fails.
pub const JSON_DEPTH: usize = 32;
/// Maximum length of a line from the serial port, in bytes: `CONNECT 4294967295:65535 <64 hex>` is
/// 89. A longer one is dropped as a whole.
pub const LINE: usize = 128;
/// Time from accept(2) to the end of the first head, TLS handshake included (the Go agents: 3 s,
/// P§3.1). TLS records without HTTP, such as key updates, do not prolong it. Then mote hangs up.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(3);
/// Time from the end of a head to the end of its body, even if bytes still arrive. Beyond it: 408.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which an idle keep-alive connection is closed (P§3.1).
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
