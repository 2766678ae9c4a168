//! Cargo features that a build can leave out, for small images or guests that trust their host
//! less. Rule: only the entry point of a request or subcommand checks its feature. All code is
//! always compiled and tested; unreachable code is not linked.

use std::fmt;
use std::pin::Pin;

use mote_core::hostapi::policy::{Capability, Features};

use crate::print;

/// The release, and the commit if `scripts/build` made this.
pub(crate) const VERSION: &str = match option_env!("MOTE_BUILT") {
    Some(built) => built,
    None => concat!(env!("CARGO_PKG_VERSION"), " (of an unknown commit)"),
};

/// A boxed future. An async block links everything that it could await, even behind a constant
/// false; a box links only what is constructed.
pub(crate) type BoxFuture<'a, T = ()> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// The crate async-io instead of mote-reactor: a second thread, and therefore no sandbox.
pub(crate) const ASYNC_IO: bool = cfg!(feature = "async-io");
/// The cipher for CPUs without AES instructions: 50 KB. Go hosts do not need it.
pub(crate) const CHACHA20: bool = cfg!(feature = "chacha20");
/// systemd credentials, in a guest without systemd.
pub(crate) const CREDENTIALS: bool = cfg!(feature = "credentials");
/// `/1.0/exec`: commands.
pub(crate) const EXEC: bool = cfg!(feature = "exec");
/// `/1.0/sftp`: files.
pub(crate) const FILES: bool = cfg!(feature = "files");
/// Templates and NIC names at first boot.
pub(crate) const FIRST_BOOT: bool = cfg!(feature = "first-boot");
/// `freeze`, `thaw` and `trim`.
pub(crate) const FREEZE: bool = cfg!(feature = "freeze");
/// Process 1. Never listed as absent: only one-file images need it.
pub(crate) const INIT: bool = cfg!(feature = "init");
/// Serving beyond an initramfs: in the root that it switches to, or until that root's agent takes
/// over.
pub(crate) const INITRAMFS: bool = cfg!(feature = "initramfs");
/// `/1.0/metrics`.
pub(crate) const METRICS: bool = cfg!(feature = "metrics");
/// Shared directories.
pub(crate) const MOUNTS: bool = cfg!(feature = "mounts");
/// Connections to ports in the guest.
pub(crate) const PORT_FORWARD: bool = cfg!(feature = "port-forward");
/// Ready without an application.
pub(crate) const READY_WHEN: bool = cfg!(feature = "ready-when");
/// Storing the host's files.
pub(crate) const REMEMBER: bool = cfg!(feature = "remember");
/// Bringing hot-plugged devices online.
pub(crate) const RESOURCES: bool = cfg!(feature = "resources");
/// Work after a resume.
pub(crate) const RESTORE: bool = cfg!(feature = "restore");
/// `/1.0/state`.
pub(crate) const STATE: bool = cfg!(feature = "state");
/// Limits of the policy within a capability.
pub(crate) const LIMITS: bool = EXEC || FILES || PORT_FORWARD || RESOURCES;

pub(crate) const CAPABILITIES: Features = Features::of(&[
    (EXEC, Capability::Exec),
    (FILES, Capability::Files),
    (MOUNTS, Capability::Mounts),
    (FIRST_BOOT || CREDENTIALS, Capability::Templates),
    (PORT_FORWARD, Capability::PortForward),
]);

/// Features of the default build; `--check` shows the missing ones. `async-io`, `init` and `tcp`
/// are additions and not shown.
const FEATURES: [(&str, bool); 15] = [
    ("chacha20", CHACHA20),
    ("credentials", CREDENTIALS),
    ("exec", EXEC),
    ("files", FILES),
    ("first-boot", FIRST_BOOT),
    ("freeze", FREEZE),
    ("initramfs", INITRAMFS),
    ("metrics", METRICS),
    ("mounts", MOUNTS),
    ("port-forward", PORT_FORWARD),
    ("ready-when", READY_WHEN),
    ("remember", REMEMBER),
    ("resources", RESOURCES),
    ("restore", RESTORE),
    ("state", STATE),
];

/// Returns the exit code of a subcommand that this build omits.
pub(crate) fn absent() -> u8 {
    print::complain(format_args!("this build does not have that command; it was made {Build}"));
    2
}

/// Displays the features that this build omits.
pub(crate) struct Build;

impl fmt::Display for Build {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut absent = FEATURES.iter().filter(|(_, built)| !built).map(|(name, _)| name);
        let Some(first) = absent.next() else { return out.write_str("with everything") };
        write!(out, "without {first}")?;
        absent.try_for_each(|name| write!(out, ", {name}"))
    }
}
