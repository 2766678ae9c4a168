//! `POST /1.0/exec` (P§4.1): a command connected to websockets. The core's `hostapi/exec` parses requests
//! and writes answers; this starts the process and relays its input and output.
//!
//! Output is not buffered beyond the frame being sent: if the host does not read, the process blocks,
//! as it would on a pipe.

mod arrival;
mod execute;
mod outcome;
mod pty;
mod pump;
mod start;

pub(crate) use arrival::arrive;
pub(crate) use start::start;
