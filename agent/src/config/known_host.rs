//! Stores the last host info for a restarted agent: a host that has not noticed the restart does
//! not send it again (P§2.3), and `agent.conf` dates from the VM's start.

use std::io;
use std::path::Path;

use crate::built;
use crate::guest_path::is_roots_alone;
use crate::options::Options;
use crate::runtime::{log, log::frozen, read_bounded, run_dir, write_small};

/// Maximum size of the document, in bytes; most of it is the certificate.
const MAX_HOST_INFO: u64 = 2 * mote_core::hostapi::host_info::CERTIFICATE as u64;

/// The host's file with its address, in the same format.
pub(super) const ADDRESS: &str = "agent.conf";

/// Stores the body of an accepted PUT. Skips a frozen disk, which would block the agent: the next
/// PUT is stored, and the host sends one after a power cut.
pub(crate) fn keep(options: &Options, body: &[u8]) {
    if let Err(error) = write_small(&options.root.join(run_dir::KNOWN_HOST), body) {
        log::debug(format_args!("cannot store the host's address: {error}"));
    }
    if let Some(directory) = options.remember.as_deref().filter(|_| built::REMEMBER)
        && !frozen::is_frozen()
    {
        keep_in(directory, ADDRESS, body, write_small);
    }
}

type Write = fn(&Path, &[u8]) -> io::Result<()>;

/// Stores a changed host file in a directory that only root can write.
pub(super) fn keep_in(directory: &Path, name: &str, bytes: &[u8], write: Write) {
    let path = directory.join(name);
    let is_there = || read_bounded(&path, MAX_HOST_INFO).is_ok_and(|old| old == bytes);
    if !is_roots_alone(directory) || is_there() {
        return;
    }
    if let Err(error) = write(&path, bytes) {
        log::warn(format_args!("cannot remember {}: {error}", path.display()));
    }
}

/// Returns the stored body, which names the trusted host, if only root can have written it.
pub(crate) fn recall(root: &Path) -> Option<Vec<u8>> {
    let path = root.join(run_dir::KNOWN_HOST);
    let trusted = is_roots_alone(path.parent()?) && is_roots_alone(&path);
    if trusted { read_bounded(&path, MAX_HOST_INFO).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{chmod, scratch};
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn ignores_a_file_that_others_can_write() {
        let root = scratch("known-host");
        let path = root.join(run_dir::KNOWN_HOST);
        fs::create_dir_all(root.join("run/mote")).unwrap();
        chmod(&root.join("run/mote"), 0o755);
        assert_eq!(recall(&root), None);
        let arguments = ["mote-agent", "--root", root.to_str().unwrap()].map(Into::into);
        keep(&crate::options::parse(arguments.into_iter()).unwrap(), b"{}");
        chmod(&path, 0o600);
        assert_eq!(recall(&root).as_deref(), Some(&b"{}"[..]));
        chmod(&path, 0o620);
        assert_eq!(recall(&root), None);
        chmod(&path, 0o600);
        chmod(&root.join("run/mote"), 0o777);
        assert_eq!(recall(&root), None);
        chmod(&root.join("run/mote"), 0o755);
        assert!(recall(&root).is_some());
        fs::rename(&path, root.join("elsewhere")).unwrap();
        symlink(root.join("elsewhere"), &path).unwrap();
        assert_eq!(recall(&root), None);
    }
}
