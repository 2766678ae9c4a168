//! What a build leaves out (Cargo features), for images that are tiny or trust their host with less
//! than all. The rule: it is asked where a request or a subcommand comes in and nowhere else. All code
//! is always compiled and tested; what nobody can call is not linked.

use std::fmt;
use std::pin::Pin;
use std::process::ExitCode;

use crate::print;

/// What is awaited only if it is there. An async block carries the code of all that it could await,
/// also where a constant says that it never will; behind a box there is only what was made.
pub(crate) type Later<'a, T = ()> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// The cipher for CPUs without AES instructions: 50 KB. Every Go host can do without.
pub(crate) const CHACHA20: bool = cfg!(feature = "chacha20");
/// Commands.
pub(crate) const EXEC: bool = cfg!(feature = "exec");
/// sftp.
pub(crate) const FILES: bool = cfg!(feature = "files");
/// Templates and names of NICs.
pub(crate) const FIRST_BOOT: bool = cfg!(feature = "first-boot");
/// `/1.0/metrics`.
pub(crate) const METRICS: bool = cfg!(feature = "metrics");
/// Shared directories.
pub(crate) const MOUNTS: bool = cfg!(feature = "mounts");
/// Connections to ports in the guest.
pub(crate) const PORT_FORWARD: bool = cfg!(feature = "port-forward");
/// `/1.0/state`.
pub(crate) const STATE: bool = cfg!(feature = "state");

/// The features by name; `--check` shows those that are not there.
const FEATURES: [(&str, bool); 8] = [
    ("chacha20", CHACHA20),
    ("exec", EXEC),
    ("files", FILES),
    ("first-boot", FIRST_BOOT),
    ("metrics", METRICS),
    ("mounts", MOUNTS),
    ("port-forward", PORT_FORWARD),
    ("state", STATE),
];

/// The end of a subcommand that is not there.
pub(crate) fn absent() -> ExitCode {
    print::complain(format_args!("this build does not have that; it was made {Build}"));
    ExitCode::from(2)
}

/// How it was made.
pub(crate) struct Build;

impl fmt::Display for Build {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut absent = FEATURES.iter().filter(|(_, built)| !built).map(|(name, _)| name);
        let Some(first) = absent.next() else { return out.write_str("with everything") };
        write!(out, "without {first}")?;
        absent.try_for_each(|name| write!(out, ", {name}"))
    }
}
