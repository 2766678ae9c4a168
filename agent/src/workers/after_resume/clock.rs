//! Steps the clock from KVM's PTP device, or from the RTC.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mote_core::resume::clock::{Cause, Step, is_setter, step};

use crate::print;
use crate::runtime::text_of;
use crate::sys::file::{self, OFlags};
use crate::sys::restored::{device_time, is_synchronised, set_wall, wall};
use crate::sys::sleep;
use crate::system::devices::entries;
use crate::system::processes::{SERVICES, is_of};
use crate::system::{modules, signs};

/// A second, in nanoseconds.
const SECOND: i64 = 1_000_000_000;
const KVM: &str = "KVM virtual PTP\n";
/// Polling interval of the RTC.
const LOOK: Duration = Duration::from_millis(5);
/// Number of reads; together they take two seconds.
const LOOKS: u32 = 400;
/// Mean delay of QEMU's RTC behind the host on PC and riscv64, in ns: it starts at a random
/// fraction of a second. The RTC of aarch64 is in step with the host.
const BEHIND: i64 = if cfg!(target_arch = "aarch64") { 0 } else { SECOND / 2 };

/// Steps the clock if needed, unless another program sets it. Prints the step and its source, or
/// the reason. The exit code is a failure if the user requested the step and it failed.
pub(super) fn set(cause: Cause) -> u8 {
    let (by, why, fails) = match measured(cause) {
        Some((by, why)) if by == 0 || set_wall(wall() + by) => (by, why, false),
        Some(_) => (0, "not permitted", true),
        None => (0, "no other clock", true),
    };
    let printed = print::out(format_args!("clock stepped by {} ms ({why})\n", by / 1_000_000));
    u8::from(printed.is_err() || cause == Cause::Asked && fails)
}

fn measured(cause: Cause) -> Option<(i64, &'static str)> {
    if is_synchronised() || has_setter(Path::new("/proc")) {
        return Some((0, "another program sets it"));
    }
    // The device exists only with KVM.
    drop(modules::load(Path::new("/"), "ptp_kvm"));
    let (difference, source) = match by_host() {
        Some(difference) => (difference, "from the host's clock"),
        None => (hardware()?, "from the RTC"),
    };
    Some(match step(difference, cause) {
        Step::Right => (0, source),
        Step::By(by) => (by, source),
        Step::LocalTime => (0, "the difference may be a time zone; see sync-time"),
    })
}

fn by_host() -> Option<i64> {
    let device = find(Path::new("/sys/class/ptp"), "clock_name", &|_, name| name == KVM)?;
    let device = file::open(&Path::new("/dev").join(device.file_name()?), OFlags::RDONLY).ok()?;
    let before = wall();
    let host = device_time(&device)?;
    Some(host - (before + (wall() - before) / 2))
}

/// Returns the first entry of a directory whose `file` is accepted.
fn find(directory: &Path, file: &str, is_it: &dyn Fn(&Path, &str) -> bool) -> Option<PathBuf> {
    let mut all = entries(directory);
    while let Some(path) = all.pop() {
        if is_it(&path, &text_of(&path, file)) {
            return Some(path);
        }
    }
    None
}

/// Returns the difference to the RTC, measured when its second changes, in ns.
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

/// Returns whether a service of this system sets the clock. Containers may not set it, so they do
/// not count. A systemd service may have its own mount namespace, but not its own pid namespace.
fn has_setter(proc: &Path) -> bool {
    let ids = |process: &Path| file::readlink(&process.join("ns/pid")).ok();
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
    fn finds_a_service_that_sets_the_clock() {
        let root = crate::runtime::scratch("setter");
        for (user, expected) in [("0", true), ("102", true), ("1000", false)] {
            for (process, name) in [("1", "init\n"), ("77", "ntpd\n"), ("self", "x")] {
                let status = format!("Name:\t{name}Uid:\t{user}\t{user}\t{user}\t{user}\n");
                for (file, text) in [("comm", name), ("status", &status)] {
                    crate::runtime::put(&root, &format!("{process}/{file}"), text);
                }
            }
            assert_eq!(has_setter(&root), expected, "{user}");
        }
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
    fn finds_the_kvm_clock_among_several() {
        let root = crate::runtime::scratch("ptp");
        for (device, name) in
            [("ptp0", "e1000e\n"), ("ptp1", "KVM virtual PTP\n"), ("ptp2", "ptp_vmw\n")]
        {
            crate::runtime::put(&root, &format!("{device}/clock_name"), name);
        }
        assert_eq!(find(&root, "clock_name", &|_, name| name == KVM), Some(root.join("ptp1")));
    }
}
