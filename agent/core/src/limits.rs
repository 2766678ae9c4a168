//! Limits on one message of a peer (the host, a client in the guest, the status port): its size,
//! counts and depth, and the time until it is complete. Each limit states its unit, its reason, and
//! what happens past it.
//!
//! Every other size, period and deadline is a named constant with its reason, at the top of the
//! file that applies it: the status channel's in `status/pace.rs`, those of exec in `hostapi/exec`,
//! and so on.

use core::time::Duration;

/// Longest request or response head, bytes. Go's default is 1 MiB; no known client sends
/// 2 KiB. Over it: 431 to a client; a call to the host fails.
pub const HEAD: usize = 8 * 1024;
/// Maximum number of header fields: they are kept on the stack. Over it: 431; a call to the host
/// fails.
pub const HEADERS: usize = 48;
/// Longest request body of a client in the guest, bytes; a storage volume's config is the largest
/// real one. Longer bodies from the host need admission. Over it: 413 and the connection is closed.
pub const BODY: usize = 64 * 1024;
/// Longest body of a request from the host, bytes; only exec requests may be longer. Over it: 413.
pub const HOST_BODY: usize = 1024 * 1024;
/// Longest body of a request from the host that needs no share of [`HOST_MEMORY`], bytes; nearly
/// all are shorter. Over it: the request waits for its share.
pub const HOST_SHORT: usize = 8 * 1024;
/// Longest body of an exec request, bytes: Linux takes 2 MiB of arguments and environment by
/// default; the rest is for JSON's quotes and some escapes. Over it: 413.
pub const EXEC_BODY: usize = 3 * 1024 * 1024;
/// Memory that requests of the host may occupy for long, bytes: their long bodies while they are
/// received, commands until they are started, the metadata of operations and lists of them. Large
/// enough for one command of the 2 MiB that Linux accepts, both as JSON and parsed. Over it: a
/// request waits for 3 s; then 503.
pub const HOST_MEMORY: usize = 4 * 1024 * 1024 + 96 * 1024;
/// Total size of the events that some listener has not read yet, bytes; an event of [`HOST_BODY`]
/// fits. Over it: a new event waits for 1 s; then the listeners with the oldest event are dropped.
pub const EVENTS: usize = HOST_BODY + 256 * 1024;
/// Longest JSON answer of the host that is kept in memory, bytes: one config value may be a whole
/// cloud-init user-data. Over it: the call fails. Streams (image export) are forwarded piece by
/// piece.
pub const HOST_REPLY: usize = 2 * 1024 * 1024;
/// Longest answer of the host that can be held next to others, bytes: nearly all are shorter. Over
/// it: while another one is held, a guest's `GET` waits and is then repeated; other requests fail.
pub const SHORT_REPLY: usize = 16 * 1024;
/// Deepest JSON nesting, levels: the open brackets are kept as bits of one number. Over it: 400; a
/// call to the host fails.
pub const JSON_DEPTH: usize = 32;
/// Longest line accepted from the serial port, bytes: `CONNECT 4294967295:65535 <64 hex>` is 89.
/// A longer one is dropped as a whole.
pub const LINE: usize = 128;
/// From accept(2) to the end of the TLS handshake and of the first head (the Go agents: 3 s,
/// P§3.1). TLS records without HTTP, such as key updates, do not prolong it. After it the
/// connection is closed.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(3);
/// From the end of a head to the end of its body, whether or not bytes still arrive. Over it: 408.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// An idle keep-alive connection is closed after this (P§3.1).
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
