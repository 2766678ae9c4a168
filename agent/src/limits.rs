//! Every capacity, period and deadline, in one place: unit, reason, and what happens at the edge.

use core::time::Duration;

/// Longest request or response head, bytes. Go's default is 1 MiB; no real client of ours sends
/// 2 KiB. Over it: 431 to a client, a failed call for a host.
pub const HEAD: usize = 8 * 1024;
/// Most headers in a head. Over it: 431.
pub const HEADERS: usize = 48;
/// Longest request body we keep, bytes (a storage volume's config is the largest real one). Over
/// it: 413 and the connection is closed.
pub const BODY: usize = 64 * 1024;
/// Longest body of the host's requests, bytes: a command with its environment (the kernel's own limit
/// is 2 MiB). Over it: 413.
pub const HOST_BODY: usize = 1024 * 1024;
/// Longest JSON answer of the host that we hold, bytes: one config value may be a whole
/// cloud-init user-data. Over it: the call fails. Streams (image export) are not held at all.
pub const HOST_REPLY: usize = 4 * 1024 * 1024;
/// Deepest JSON nesting accepted, levels: bounds the stack. Over it: 400, or a failed call.
pub const JSON_DEPTH: usize = 32;
/// Longest line accepted from the serial port, bytes: `CONNECT 4294967295:65535 <64 hex>` is 89.
/// A longer one is dropped whole.
pub const LINE: usize = 128;
/// From accept to the end of the TLS handshake and the first head (the Go agents: 3 s, P§3.1).
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(3);
/// From the end of a head to the end of its body. A slow-drip client gets 408.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// A kept-alive connection with nothing to say is closed after this (P§3.1).
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
