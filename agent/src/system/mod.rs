//! The machine: kernel modules, devices and their events, network interfaces, process 1.

use mote_core::hostapi::info::Machine;

pub(crate) mod devices;
pub(crate) mod modules;
pub(crate) mod netlink;
pub(crate) mod power;
pub(crate) mod processes;
pub(crate) mod signs;
pub(crate) mod uevent;

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
