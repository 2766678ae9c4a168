//! Cargo features that a build can omit, for small images or guests that trust their host less.
//! Rule: only the entry point of a request or subcommand checks its feature. All code is always
//! compiled and tested; unreachable code is not linked.

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
/// The agent as process 1. Never listed as absent, because only one-file images need it.
pub(crate) const INIT: bool = cfg!(feature = "init");

/// Defines a constant for each feature of the default build, and their list for `--check`.
macro_rules! features {
    ($($built:ident $name:tt,)*) => {
        $(pub(crate) const $built: bool = cfg!(feature = $name);)*
        const FEATURES: &[(&str, bool)] = &[$(($name, $built)),*];
    };
}

features! {
    CHACHA20 "chacha20", // the cipher for CPUs without AES instructions, 50 KB; not for Go hosts
    CREDENTIALS "credentials", // systemd's credentials in a guest without systemd
    EXEC "exec",
    FILES "files",
    FIRST_BOOT "first-boot", // templates and NIC names
    FREEZE "freeze",
    INITRAMFS "initramfs", // continuing in the next root until its agent takes over
    METRICS "metrics",
    MOUNTS "mounts", // shared directories
    PORT_FORWARD "port-forward",
    READY_WHEN "ready-when",
    REMEMBER "remember", // storing the host's files
    RESOURCES "resources", // bringing hot-plugged devices online
    RESTORE "restore", // work after a resume
    STATE "state",
}

/// Whether a capability that has limits in the policy is built.
pub(crate) const LIMITS: bool = EXEC || FILES || PORT_FORWARD || RESOURCES;

pub(crate) const CAPABILITIES: Features = Features::of(&[
    (EXEC, Capability::Exec),
    (FILES, Capability::Files),
    (MOUNTS, Capability::Mounts),
    (FIRST_BOOT || CREDENTIALS, Capability::Templates),
    (PORT_FORWARD, Capability::PortForward),
]);

/// Returns the exit code of a subcommand that this build omits.
pub(crate) fn absent() -> u8 {
    print::complain(format_args!("this build lacks that command; it was built {Build}"));
    2
}

pub(crate) struct Build;

impl fmt::Display for Build {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut absent = FEATURES.iter().filter(|(_, built)| !built).map(|(name, _)| name);
        let Some(first) = absent.next() else { return out.write_str("with everything") };
        write!(out, "without {first}")?;
        absent.try_for_each(|name| write!(out, ", {name}"))
    }
}
