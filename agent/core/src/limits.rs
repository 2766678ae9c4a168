//! Limits on one message of a peer (the host, a client in the guest, the status port): its size,
//! counts and depth, and the time until it is complete. Each limit states its unit, its reason, and
//! what happens beyond it.
//!
//! Every other size, period and deadline is a named constant with its reason, at the top of the
//! file that applies it: the status channel's in `status/pace.rs`, those of exec in `hostapi/exec`,
//! and so on.

use core::time::Duration;

/// Longest request or response head, bytes. Go's default is 1 MiB; no known client sends 2 KiB.
/// Beyond it, a client gets 431 and a call to the host fails.
pub const HEAD: usize = 8 * 1024;
/// Maximum number of header fields, which are on the stack. Beyond it, the same happens.
pub const HEADERS: usize = 48;
/// Longest request body of a client in the guest, bytes; a storage volume's config is the largest
/// real one. Longer bodies from the host need admission. Beyond it: 413 and disconnection.
pub const BODY: usize = 64 * 1024;
/// Longest body of a request from the host, bytes; only exec requests may exceed it. Others: 413.
pub const HOST_BODY: usize = 1024 * 1024;
/// Longest body of a request from the host that needs no share of [`HOST_MEMORY`], bytes; nearly
/// all are shorter. A longer one waits for its share.
pub const HOST_SHORT: usize = 8 * 1024;
/// Longest body of an exec request, bytes: Linux takes 2 MiB of arguments and environment by
/// default; the rest is for JSON's quotes and some escapes. Beyond it, the host gets 413.
pub const EXEC_BODY: usize = 3 * 1024 * 1024;
/// Memory that requests of the host may occupy for long, bytes: their long bodies while they are
/// received, commands until they are started, the metadata of operations and lists of them. Large
/// enough for one command of the 2 MiB that Linux accepts, both as JSON and parsed. Beyond it, a
/// request waits for 3 s, then gets 503.
pub const HOST_MEMORY: usize = 4 * 1024 * 1024 + 96 * 1024;
/// Total size of the events that some listener has not read yet, bytes; an event of [`HOST_BODY`]
/// fits. Beyond it, a new event waits for 1 s; then mote drops the listeners with the oldest event.
pub const EVENTS: usize = HOST_BODY + 256 * 1024;
/// Longest JSON answer of the host that is kept in memory, bytes: one config value may be a whole
/// cloud-init user-data. Beyond it, the call fails. Streams (image export) are forwarded piece by
/// piece.
pub const HOST_REPLY: usize = 2 * 1024 * 1024;
/// Longest answer of the host that can be held next to others, bytes: nearly all are shorter. While
/// a longer one is held, another `GET` of a guest waits and is then repeated; other requests fail.
pub const SHORT_REPLY: usize = 16 * 1024;
/// Deepest JSON nesting, levels: the open brackets are kept as bits of one number. Beyond it, a
/// request gets 400, and a call to the host fails.
pub const JSON_DEPTH: usize = 32;
/// Longest line accepted from the serial port, bytes: `CONNECT 4294967295:65535 <64 hex>` is 89.
/// A longer one is dropped as a whole.
pub const LINE: usize = 128;
/// Time from accept(2) to the end of the first head, TLS handshake included (the Go agents: 3 s,
/// P§3.1). TLS records without HTTP, such as key updates, do not prolong it. Then mote hangs up.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(3);
/// Time from the end of a head to the end of its body, even if bytes still arrive. Beyond it: 408.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which an idle keep-alive connection is closed (P§3.1).
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
