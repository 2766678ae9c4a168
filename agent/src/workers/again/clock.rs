//! Sets the clock by the host's: KVM's PTP device, or the hardware's clock at the turn of a second.

use std::fs::{File, read_link};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use mote_core::follow::clock::{Cause, Step, is_setter, step};

use crate::print;
use crate::runtime::small_files::text_of;
use crate::sys::restored::{device_time, is_synchronised, set_wall, wall};
use crate::sys::sleep;
use crate::system::devices::entries;
use crate::system::processes::{SERVICES, is_of};
use crate::system::{modules, signs};

/// A second, in nanoseconds.
const SECOND: i64 = 1_000_000_000;
/// What KVM's clock is called.
const KVM: &str = "KVM virtual PTP\n";
/// Pause between two looks at the hardware's clock, until it shows another second.
const LOOK: Duration = Duration::from_millis(5);
/// Most looks: two seconds.
const LOOKS: u32 = 400;
/// How far QEMU's clock of a PC, and of its machine for riscv64, is behind its host: the part of a second at which it was
/// made. The middle of that. That of aarch64 turns with its host's.
const BEHIND: i64 = if cfg!(target_arch = "aarch64") { 0 } else { SECOND / 2 };

/// Sets it, if it is not right and nobody else does. Prints by how much, and from what or why not. Who asked for it is told by
/// the exit code, too, that it could not be.
pub(super) fn set(cause: Cause) -> ExitCode {
    let (by, why, fails) = match measured(cause) {
        Some((by, why)) if by == 0 || set_wall(wall() + by) => (by, why, false),
        Some(_) => (0, "not permitted", true),
        None => (0, "there is no other clock", true),
    };
    let told = print::out(format_args!("clock set by {} ms ({why})\n", by / 1_000_000));
    ExitCode::from(u8::from(told.is_err() || cause == Cause::Asked && fails))
}

/// By how much to set it, and from what, or why not; `None` if there is nothing to set it by.
fn measured(cause: Cause) -> Option<(i64, &'static str)> {
    if is_synchronised() || has_setter(Path::new("/proc")) {
        return Some((0, "another program sets it"));
    }
    // It is there with KVM alone.
    drop(modules::load(Path::new("/"), "ptp_kvm"));
    let (difference, source) = match by_host() {
        Some(difference) => (difference, "by the host's clock"),
        None => (hardware()?, "by the hardware's clock"),
    };
    Some(match step(difference, cause) {
        Step::Right => (0, source),
        Step::By(by) => (by, source),
        Step::LocalTime => (0, "so much local times differ by; see sync-time"),
    })
}

/// The difference by KVM's device.
fn by_host() -> Option<i64> {
    let device = find(Path::new("/sys/class/ptp"), "clock_name", &|_, name| name == KVM)?;
    let device = File::open(Path::new("/dev").join(device.file_name()?)).ok()?;
    let before = wall();
    let host = device_time(&device)?;
    Some(host - (before + (wall() - before) / 2))
}

/// The first entry of a directory in which there is such a file with such a text.
#[inline(never)] // its size
fn find(directory: &Path, file: &str, is_it: &dyn Fn(&Path, &str) -> bool) -> Option<PathBuf> {
    let mut all = entries(directory);
    while let Some(path) = all.pop() {
        if is_it(&path, &text_of(&path, file)) {
            return Some(path);
        }
    }
    None
}

/// The difference to the hardware's clock, seen when it shows another second.
fn hardware() -> Option<i64> {
    let first = signs::hardware_clock()?;
    for _ in 0..LOOKS {
        sleep(LOOK);
        let next = signs::hardware_clock()?;
        if next != first {
            return Some(next.saturating_mul(SECOND).saturating_add(BEHIND).saturating_sub(wall()));
        }
    }
    None
}

/// Whether a program runs that sets the clock: a service of this system's, not of a container's, which may not set it. A service of
/// systemd's may have mounts of its own, but it has no process ids of its own.
fn has_setter(proc: &Path) -> bool {
    let ids = |process: &Path| read_link(process.join("ns/pid")).ok();
    let ours = ids(&proc.join("self"));
    let is_it = |process: &Path, name: &str| {
        is_setter(name.as_bytes()) && is_of(process, SERVICES) && ids(process) == ours
    };
    find(proc, "comm", &is_it).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_sets_the_clock_is_found_by_name_and_is_no_persons() {
        let root = crate::runtime::scratch::scratch("setter");
        for (user, expected) in [("0", true), ("102", true), ("1000", false)] {
            for (process, name) in [("1", "init\n"), ("77", "ntpd\n"), ("self", "x")] {
                let directory = root.join(process);
                std::fs::create_dir_all(&directory).unwrap();
                std::fs::write(directory.join("comm"), name).unwrap();
                let status = format!("Name:\t{name}Uid:\t{user}\t{user}\t{user}\t{user}\n");
                std::fs::write(directory.join("status"), status).unwrap();
            }
            assert_eq!(has_setter(&root), expected, "{user}");
        }
        // In a container that shares the user's ids.
        std::fs::write(root.join("77/status"), "Name:\tntpd\nUid:\t0\t0\t0\t0\n").unwrap();
        for (own, expected) in [("pid:[1]", true), ("pid:[2]", false)] {
            for (process, ids) in [("self", "pid:[1]"), ("77", own)] {
                std::fs::create_dir_all(root.join(process).join("ns")).unwrap();
                let link = root.join(process).join("ns/pid");
                drop(std::fs::remove_file(&link));
                std::os::unix::fs::symlink(ids, link).unwrap();
            }
            assert_eq!(has_setter(&root), expected, "{own}");
        }
    }

    #[test]
    fn of_several_devices_the_one_of_kvm_is_taken() {
        let root = crate::runtime::scratch::scratch("ptp");
        for (device, name) in
            [("ptp0", "e1000e\n"), ("ptp1", "KVM virtual PTP\n"), ("ptp2", "ptp_vmw\n")]
        {
            std::fs::create_dir_all(root.join(device)).unwrap();
            std::fs::write(root.join(device).join("clock_name"), name).unwrap();
        }
        assert_eq!(find(&root, "clock_name", &|_, name| name == KVM), Some(root.join("ptp1")));
    }
}
