//! The machine's values for `GET /1.0`.

use mote_core::hostapi::info::Machine;

/// Passes the machine's values to `look`.
pub(crate) fn described<T>(look: impl FnOnce(&Machine<'_>) -> T) -> T {
    let uname = rustix::system::uname();
    let text = |value: &std::ffi::CStr| value.to_string_lossy().into_owned();
    look(&Machine {
        architecture: &text(uname.machine()),
        hostname: &text(uname.nodename()),
        release: &text(uname.release()),
        pid: std::process::id(),
    })
}
