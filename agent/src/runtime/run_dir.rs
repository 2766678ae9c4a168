//! Paths of the files in `/run/mote`, relative to the root.

use std::io::ErrorKind;
use std::path::Path;

pub(crate) const DIRECTORY: &str = "run/mote";
/// Locked by the running agent.
pub(crate) const LOCK: &str = "run/mote/lock";
/// Id of the boot in which the files were written, because `/run` may be on a disk.
pub(crate) const BOOT: &str = "run/mote/boot";
/// The last host info.
pub(crate) const KNOWN_HOST: &str = "run/mote/known-host";
/// The agent's status, for `mote-agent status`.
pub(crate) const STATUS: &str = "run/mote/status";
/// The last state that an application set, Ready or Started.
pub(crate) const READY: &str = "run/mote/ready";
/// Mounts in progress and their processes.
pub(crate) const HANGING: &str = "run/mote/hanging";
/// Exists once the agent has brought online what was added before its first start.
pub(crate) const FOLLOWED: &str = "run/mote/followed";
/// The guard that has frozen file systems, and its deadline.
pub(crate) const FREEZE: &str = "run/mote/freeze";
/// Disk sizes as last seen by grow workers.
pub(crate) const SIZES: &str = "run/mote/sizes";
/// The VM's generation, the number of restores and clones: a native u64, changed in place.
pub(crate) const GENERATION: &str = "run/mote/generation";
/// The files that are invalid after a reboot.
pub(crate) const OF_A_BOOT: [&str; 6] = [READY, HANGING, KNOWN_HOST, FOLLOWED, SIZES, GENERATION];
/// Mount point of the host's share while it is read.
pub(crate) const SHARE: &str = "run/mote/share";
/// Mount point for `--check`, which may run at the same time as the agent.
pub(crate) const CHECKED_SHARE: &str = "run/mote/check";

/// Returns an error message for a file in `/run/mote`, with advice.
pub(crate) fn unwritable(verb: &str, path: &Path, error: &std::io::Error) -> String {
    let advice = [
        (ErrorKind::PermissionDenied, "; run the agent as root"),
        (ErrorKind::StorageFull, "; free some space on /run"),
        (ErrorKind::ReadOnlyFilesystem, "; mount a tmpfs on /run"),
    ];
    let advice = advice.iter().find(|(kind, _)| *kind == error.kind()).map_or("", |found| found.1);
    format!("cannot {verb} {}: {error}{advice}", path.display())
}
