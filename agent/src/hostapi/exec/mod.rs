//! `POST /1.0/exec` (P§4.1): runs a command connected to websockets. The core's `hostapi/exec`
//! parses requests and writes answers; this module starts the process and relays its input and
//! output.
//!
//! Only the frame being sent is buffered: if the host does not read, the process blocks, as on a
//! pipe.

mod execute;
mod pty;
mod pump;
mod start;

pub(crate) use start::{arrive, start};
