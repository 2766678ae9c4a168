//! Decides whether the agent enters the sandbox (`sys/sandbox.rs`): if nothing that the host may ask for needs
//! root's rights. All that start-up needs them for is done then.

use mote_core::hostapi::policy::{Capability, Policy};

use crate::built;
use crate::cli::options::Options;
use crate::runtime::log;
use crate::start::devices::{self, CONSOLE, Device};
use crate::start::listen::Way;
use crate::status::port::Found;
use crate::sys::sandbox;

/// What `status` and the policy's line say of an agent in the sandbox.
const WORD: &str = "; in a sandbox";

/// Whether nothing that is allowed, and built, needs rights.
pub(crate) fn is_for(policy: &Policy) -> bool {
    let needs = [
        (built::EXEC, Capability::Exec),
        (built::FILES, Capability::Files),
        (built::MOUNTS, Capability::Mounts),
    ];
    !needs.iter().any(|(built, capability)| *built && policy.allows(*capability))
}

/// Enters it if it is for this policy and all devices are there; the words for `status`, or none.
pub(crate) fn enter(
    options: &Options,
    policy: &Policy,
    way: &Way,
    port: Option<&Found>,
) -> &'static str {
    // There it could not follow into the new root.
    if !is_for(policy) || options.is_early() {
        return "";
    }
    let is_late = port.is_none() && devices::find(&options.root, &CONSOLE) != Device::Absent;
    if is_late || matches!(way, Way::PortAlone(_)) {
        log::warn(format_args!("no sandbox: a device may need a driver yet"));
        return "";
    }
    // A rule needs its directory.
    let _there = std::fs::create_dir_all(options.root.join("dev"));
    let ports = port.map_or([None; 2], |port| [Some(&*port.path), port.legacy.as_deref()]);
    if sandbox::enter(&options.root, ports) {
        log::info(format_args!("in a sandbox"));
    } else {
        log::warn(format_args!("in a sandbox without Landlock or seccomp"));
    }
    WORD
}
