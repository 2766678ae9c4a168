//! Asks process 1 to power off, reboot or halt the machine.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use mote_core::hostapi::exec::power::Power;
use rustix::fs::{FileType, OFlags, fstat};
use rustix::process::Pid;

use crate::built;
use crate::runtime::{is_there, log, text_of};
use crate::sys::{self, file};

/// FIFOs of sysvinit's init, relative to the root; older versions use the second one.
const FIFOS: [&str; 2] = ["run/initctl", "dev/initctl"];

/// A way to ask process 1.
pub(crate) enum Way {
    Signal(u8),
    Fifo(File),
}

/// Finds a way to ask process 1.
/// Errors: why there is none.
pub(crate) fn find(root: &Path, power: &Power) -> Result<Way, String> {
    let program = file::readlink(&root.join("proc/1/exe")).unwrap_or_default();
    // With another root, as in tests, process 1 is still this machine's.
    let is_whole = root == Path::new("/");
    Ok(Way::Signal(if is_whole && is_mote() {
        power.mote
    } else if is_whole && is_there(root, "run/systemd/system") {
        power.systemd
    } else if let Some(fifo) = FIFOS.iter().find_map(|name| fifo(&root.join(name))) {
        return Ok(Way::Fifo(fifo));
    } else if is_whole
        && file::program(&program).ends_with(b"/busybox")
        && is_init(&text_of(root, "proc/1/cmdline"))
    {
        power.busybox
    } else {
        return Err(format!("cannot ask process 1 ({}): unknown program", program.display()));
    }))
}

impl Way {
    pub(crate) fn ask(self, power: &Power) {
        log::info(format_args!("{} for the host: asking process 1", power.name));
        match self {
            Self::Signal(signal) => sys::kill(Pid::INIT, signal.into()),
            Self::Fifo(mut fifo) => {
                if let Err(error) = fifo.write_all(&power.sysvinit()) {
                    log::error(format_args!("{}: initctl: {error}", power.name));
                }
            }
        }
    }
}

/// Returns whether process 1 is this program, with the feature `init`.
pub(crate) fn is_mote() -> bool {
    if !built::INIT {
        return false;
    }
    // The file may have two names, and an upgrade may replace it while process 1 runs.
    let [first, own] = ["/proc/1/exe", "/proc/self/exe"].map(Path::new);
    let is_one_file = file::id(first).is_ok_and(|id| file::id(own) == Ok(id));
    let links = [first, own].map(file::readlink);
    is_one_file
        || matches!(&links, [Ok(first), Ok(own)] if file::program(first) == file::program(own))
}

/// Opens a FIFO that a process reads.
fn fifo(path: &Path) -> Option<File> {
    let file = file::open(path, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW).ok()?;
    let is_fifo = FileType::from_raw_mode(fstat(&file).ok()?.st_mode) == FileType::Fifo;
    is_fifo.then_some(file)
}

/// Returns whether a command line of busybox runs its init, not a shell with a script named init.
fn is_init(line: &str) -> bool {
    let mut names = line.split('\0').map(|word| word.rsplit('/').next().unwrap_or(word));
    names.find(|name| *name != "busybox") == Some("init")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_busyboxs_init_from_its_shell() {
        for line in ["/sbin/init\0", "init\0", "/bin/busybox\0init\0", "/sbin/init\0splash\0"] {
            assert!(is_init(line), "{line}");
        }
        for line in ["/bin/busybox\0sh\0/init\0", "/bin/sh\0/init\0", "busybox\0", ""] {
            assert!(!is_init(line), "{line}");
        }
    }
}
