//! Brings hot-plugged CPUs and memory online, instead of udev's rules.

use std::ffi::OsStr;
use std::mem::take;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use mote_core::hostapi::policy::Part;
use mote_core::hotplug::resources::{Added, added};

use crate::runtime::{log, run_dir, text_of};
use crate::sys::file;
use crate::system::devices::{BALLOON, Kind, MEMORY, entries, identity, says};
use crate::system::modules;

const SYSTEM: &str = "sys/devices/system";
/// Devices through which servers change a VM's memory, and their drivers.
const DRIVEN: [(&Kind, &str, &str); 2] = [
    (&BALLOON, "a memory balloon", "virtio_balloon"),
    (&MEMORY, "a virtio-mem device", "virtio_mem"),
];

/// Brings online what was added before the first agent of this boot. Later agents skip this,
/// because an administrator may have taken devices offline. Returns the existing devices.
pub(super) fn at_start(root: &Path, uses: &dyn Fn(Part) -> bool) -> Online {
    for (kind, what, driver) in &DRIVEN {
        if !uses(Part::Memory) {
            break;
        }
        if let Err(why) = modules::drive(root, kind, what, driver) {
            log::debug(format_args!("{why}"));
        }
    }
    let followed = root.join(run_dir::FOLLOWED);
    let is_first = !file::exists(&followed);
    let mut online = Online::default();
    online.bring_new(root, &|part| is_first && uses(part));
    online.log();
    if is_first && let Err(error) = file::write(&followed, "") {
        log::debug(format_args!("{}: {error}", followed.display()));
    }
    online
}

#[derive(Debug, Default)]
pub(super) struct Online {
    cpus: u32,
    blocks: u32,
    newest: u64,
    /// Whether the kernel dropped events. It drops more until the pending ones are read
    /// (`af_netlink.c`).
    pub(super) is_lost: bool,
}

impl Online {
    pub(super) fn see(&mut self, root: &Path, event: &[u8], uses: &dyn Fn(Part) -> bool) {
        if let Some(below) = added(event).filter(|_| !self.is_lost) {
            self.bring(root, below, 0, uses);
        }
    }

    /// Handles the end of the pending events; returns whether some were lost.
    pub(super) fn end(&mut self, root: &Path, uses: &dyn Fn(Part) -> bool) -> bool {
        let is_lost = take(&mut self.is_lost);
        if is_lost {
            self.bring_new(root, uses);
        }
        is_lost
    }

    /// Brings the device at this path below [`SYSTEM`] online if it is newer than `seen`, offline,
    /// and not meant to stay offline.
    fn bring(&mut self, root: &Path, below: &[u8], seen: u64, uses: &dyn Fn(Part) -> bool) {
        let Some(added) = Added::of_path(below) else { return };
        let path = root.join(SYSTEM).join(OsStr::from_bytes(below));
        let number = identity(&path);
        self.newest = self.newest.max(number);
        let [switch, off, on] = added.switch();
        // The first CPU has no file `online`.
        if number <= seen
            || !uses(added.part())
            || !says(&path, switch, off)
            || added.is_kept_off(text_of(root, "proc/cmdline").as_bytes())
        {
            return;
        }
        match file::write(&path.join(switch), on) {
            Ok(()) => match added {
                Added::Cpu(_) => self.cpus += 1,
                Added::Memory(_) => self.blocks += 1,
            },
            Err(error) => {
                log::warn(format_args!("cannot bring {} online: {error}", path.display()));
            }
        }
    }

    /// Brings devices newer than those seen online; an older one was taken offline on purpose.
    fn bring_new(&mut self, root: &Path, uses: &dyn Fn(Part) -> bool) {
        let (system, seen) = (root.join(SYSTEM), self.newest);
        for directory in ["cpu", "memory"] {
            for path in entries(&system.join(directory)) {
                let below = path.as_os_str().as_bytes().get(system.as_os_str().len() + 1..);
                self.bring(root, below.unwrap_or_default(), seen, uses);
            }
        }
    }

    pub(super) fn log(&mut self) {
        let (cpus, blocks) = (take(&mut self.cpus), take(&mut self.blocks));
        if cpus + blocks > 0 {
            log::info(format_args!("brought online: {cpus} CPUs, {blocks} memory blocks"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::runtime::{Scratch, put, scratch};

    fn says(root: &Path, path: &str) -> String {
        fs::read_to_string(root.join(SYSTEM).join(path)).unwrap()
    }

    fn machine(name: &str) -> Scratch {
        let root = scratch(name);
        for (path, text) in [
            ("cpu/cpu0/topology", ""),
            ("cpu/cpu1/online", "0\n"),
            ("cpu/cpu2/online", "1\n"),
            ("cpu/cpufreq/online", "0\n"),
            ("memory/memory0/state", "online\n"),
            ("memory/memory8/state", "offline\n"),
            ("memory/memory9/state", "going-offline\n"),
        ] {
            put(&root, &format!("{SYSTEM}/{path}"), text);
        }
        fs::create_dir_all(root.join("run/mote")).unwrap();
        root
    }

    #[test]
    fn brings_offline_devices_online_only_at_the_first_start() {
        let root = machine("off-at-the-start");
        at_start(&root, &|_| true);
        assert_eq!(says(&root, "cpu/cpu1/online"), "1");
        assert_eq!(says(&root, "memory/memory8/state"), "online");
        for (path, left) in
            [("cpu/cpufreq/online", "0\n"), ("memory/memory9/state", "going-offline\n")]
        {
            assert_eq!(says(&root, path), left, "{path}");
        }
        // Simulates an administrator who takes the CPU offline, and a restart of the agent.
        put(&root, &format!("{SYSTEM}/cpu/cpu1/online"), "0\n");
        at_start(&root, &|_| true);
        assert_eq!(says(&root, "cpu/cpu1/online"), "0\n");
    }

    #[test]
    fn respects_resources_disabled_on_the_kernel_command_line() {
        let root = machine("kept-off");
        put(&root, "proc/cmdline", "console=ttyS0 maxcpus=1\n");
        let mut online = at_start(&root, &|_| true);
        // It also stays offline while the agent runs.
        online.see(&root, b"add@/devices/system/cpu/cpu1", &|_| true);
        assert_eq!(says(&root, "cpu/cpu1/online"), "0\n");
        assert_eq!(says(&root, "memory/memory8/state"), "online");
    }

    #[test]
    fn brings_only_new_devices_online_after_lost_events() {
        let root = machine("lost");
        // Simulates a later agent.
        fs::write(root.join(run_dir::FOLLOWED), "").unwrap();
        let mut online = at_start(&root, &|_| true);
        let seen = online.newest;
        assert!(seen > 0);
        // Unlike in sysfs, new files may have a lower number here.
        let is_newer = |cpu: &u32| {
            let path = format!("{SYSTEM}/cpu/cpu{cpu}");
            put(&root, &format!("{path}/online"), "0\n");
            identity(&root.join(path)) > seen
        };
        let new = (3..9999).find(is_newer).unwrap();
        let event = format!("add@/devices/system/cpu/cpu{new}");
        online.is_lost = true;
        online.see(&root, event.as_bytes(), &|_| true);
        assert_eq!(says(&root, &format!("cpu/cpu{new}/online")), "0\n");
        assert!(online.end(&root, &|_| true));
        assert_eq!(says(&root, &format!("cpu/cpu{new}/online")), "1");
        assert_eq!(says(&root, "cpu/cpu1/online"), "0\n");
        assert_eq!(says(&root, "memory/memory8/state"), "offline\n");
        // This one counts as seen, like a device with an event.
        put(&root, &format!("{SYSTEM}/cpu/cpu{new}/online"), "0\n");
        online.is_lost = true;
        assert!(online.end(&root, &|_| true));
        assert_eq!(says(&root, &format!("cpu/cpu{new}/online")), "0\n");
        let mut online = Online::default();
        online.see(&root, event.as_bytes(), &|_| true);
        assert_eq!(says(&root, &format!("cpu/cpu{new}/online")), "1");
        assert!(!online.end(&root, &|_| true));
        assert!(online.newest > seen);
    }
}
