//! Parts that a build can leave out (Cargo features), for tiny images or guests that trust their host
//! less. Rule: a feature is checked only where a request or a subcommand comes in. All code is always
//! compiled and tested; what nothing can call is not linked.

use std::fmt;
use std::pin::Pin;
use std::process::ExitCode;

use mote_core::hostapi::policy::{Capability, Features};

use crate::print;

/// The release, and the commit that this was built from if `scripts/build` did it.
pub(crate) const VERSION: &str = match option_env!("MOTE_BUILT") {
    Some(built) => built,
    None => concat!(env!("CARGO_PKG_VERSION"), " (of an unknown commit)"),
};

/// A boxed future. An async block links the code of all that it could await, even behind a constant
/// false; boxed, only what is constructed is linked.
pub(crate) type BoxFuture<'a, T = ()> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// The crate async-io instead of mote-reactor: a second thread, and therefore no sandbox.
pub(crate) const ASYNC_IO: bool = cfg!(feature = "async-io");
/// The cipher for CPUs without AES instructions: 50 KB. Go hosts do not need it.
pub(crate) const CHACHA20: bool = cfg!(feature = "chacha20");
/// Credentials of systemd's, in a guest without it.
pub(crate) const CREDENTIALS: bool = cfg!(feature = "credentials");
/// `/1.0/exec`: commands.
pub(crate) const EXEC: bool = cfg!(feature = "exec");
/// `/1.0/sftp`: files.
pub(crate) const FILES: bool = cfg!(feature = "files");
/// Templates and NIC names at first boot.
pub(crate) const FIRST_BOOT: bool = cfg!(feature = "first-boot");
/// `freeze`, `thaw` and `trim`.
pub(crate) const FREEZE: bool = cfg!(feature = "freeze");
/// Process 1. In no list of what is left out: only images with nothing else need it.
pub(crate) const INIT: bool = cfg!(feature = "init");
/// Life after an initramfs: in the root that it ends in, or until the agent of that takes over.
pub(crate) const INITRAMFS: bool = cfg!(feature = "initramfs");
/// `/1.0/metrics`.
pub(crate) const METRICS: bool = cfg!(feature = "metrics");
/// Shared directories.
pub(crate) const MOUNTS: bool = cfg!(feature = "mounts");
/// Connections to ports in the guest.
pub(crate) const PORT_FORWARD: bool = cfg!(feature = "port-forward");
/// Ready by itself.
pub(crate) const READY_WHEN: bool = cfg!(feature = "ready-when");
/// The host's files are kept.
pub(crate) const REMEMBER: bool = cfg!(feature = "remember");
/// What the host adds is brought into use.
pub(crate) const RESOURCES: bool = cfg!(feature = "resources");
/// What is done when the VM runs again.
pub(crate) const RESTORE: bool = cfg!(feature = "restore");
/// `/1.0/state`.
pub(crate) const STATE: bool = cfg!(feature = "state");
/// The policy's limits within a capability: only these have some.
pub(crate) const LIMITS: bool = EXEC || FILES || PORT_FORWARD || RESOURCES;

/// The capabilities by which the host can be more than the guest's policy wants, if they are built.
pub(crate) const CAPABILITIES: Features = Features::of(&[
    (EXEC, Capability::Exec),
    (FILES, Capability::Files),
    (MOUNTS, Capability::Mounts),
    (FIRST_BOOT || CREDENTIALS, Capability::Templates),
    (PORT_FORWARD, Capability::PortForward),
]);

/// The features of the default build by name; `--check` shows the absent ones. `async-io`, `init` and `tcp` add, and are
/// not shown.
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

/// Exit of a subcommand that this build leaves out.
pub(crate) fn absent() -> ExitCode {
    print::complain(format_args!("this build does not have that; it was made {Build}"));
    ExitCode::from(2)
}

/// Displays what this build leaves out.
pub(crate) struct Build;

impl fmt::Display for Build {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut absent = FEATURES.iter().filter(|(_, built)| !built).map(|(name, _)| name);
        let Some(first) = absent.next() else { return out.write_str("with everything") };
        write!(out, "without {first}")?;
        absent.try_for_each(|name| write!(out, ", {name}"))
    }
}
