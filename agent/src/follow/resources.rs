//! CPUs and memory that the host adds are brought into use. In an image without udev, or without its rules for them, nobody
//! else does it.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use mote_core::follow::resources::Added;
use mote_core::hostapi::policy::Part;
use mote_core::report::proc::words;

use crate::runtime::small_files::text_of;
use crate::runtime::{log, run_dir};
use crate::system::devices::{BALLOON, Kind, MEMORY, entries, says};
use crate::system::modules;

/// Where the kernel has them.
const SYSTEM: &str = "sys/devices/system";
/// Devices by which servers change a VM's memory, and their drivers. Without one, the host's change does nothing.
const DRIVEN: [(&Kind, &str, &str); 2] = [
    (&BALLOON, "a memory balloon", "virtio_balloon"),
    (&MEMORY, "a virtio-mem device", "virtio_mem"),
];

/// What there is of each kind, and the beginning of the kernel's option that keeps it off.
const KEPT_OFF: [(&str, &str); 2] =
    [("cpu", "maxcpus="), ("memory", "memhp_default_state=offline")];

/// Brings into use what was added before the first agent of this boot. A later one leaves it: somebody may have switched
/// it off.
pub(super) fn at_start(root: &Path, uses: &dyn Fn(Part) -> bool) {
    for (kind, what, driver) in &DRIVEN {
        if !uses(Part::Memory) {
            break;
        }
        if let Err(why) = modules::drive(root, kind, what, driver) {
            log::debug(format_args!("{why}"));
        }
    }
    let followed = root.join(run_dir::FOLLOWED);
    if followed.exists() {
        return;
    }
    let mut online = Online::default();
    online.bring_all(root, uses);
    online.log();
    if let Err(error) = std::fs::write(&followed, "") {
        log::debug(format_args!("{}: {error}", followed.display()));
    }
}

/// How many were brought into use.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Online {
    cpus: u32,
    blocks: u32,
}

impl Online {
    /// Switches one on, if it is there and off.
    pub(super) fn bring(&mut self, root: &Path, added: Added) {
        let (system, switch) = (root.join(SYSTEM), added.to_string());
        let (off, on) = added.off_and_on();
        // The first CPU has no switch.
        if !says(&system, &switch, off) {
            return;
        }
        match std::fs::write(system.join(&switch), on) {
            Ok(()) => match added {
                Added::Cpu(_) => self.cpus += 1,
                Added::Memory(_) => self.blocks += 1,
            },
            Err(error) => log::warn(format_args!("cannot bring {switch} into use: {error}")),
        }
    }

    /// Switches all on that are off, but for those that the kernel's command line keeps off.
    pub(super) fn bring_all(&mut self, root: &Path, uses: &dyn Fn(Part) -> bool) {
        let line = text_of(root, "proc/cmdline");
        let system = root.join(SYSTEM);
        for (directory, unless) in &KEPT_OFF {
            // A text that is searched for in another one takes a kilobyte of code.
            if words(line.as_bytes()).any(|word| word.starts_with(unless.as_bytes())) {
                continue;
            }
            for path in entries(&system.join(directory)) {
                let below = path.as_os_str().as_bytes().get(system.as_os_str().len() + 1..);
                let added = below.and_then(Added::of_path);
                if let Some(added) = added.filter(|one| uses(one.part())) {
                    self.bring(root, added);
                }
            }
        }
    }

    pub(super) fn log(&self) {
        if *self != Self::default() {
            let Self { cpus, blocks } = self;
            log::info(format_args!("in use now: {cpus} more CPUs, {blocks} more blocks of memory"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::runtime::scratch::scratch;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn says(root: &Path, path: &str) -> String {
        fs::read_to_string(root.join(SYSTEM).join(path)).unwrap()
    }

    fn machine(name: &str) -> crate::runtime::scratch::Scratch {
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
    fn what_is_off_at_the_first_start_is_switched_on_and_left_alone_later() {
        let root = machine("off-at-the-start");
        at_start(&root, &|_| true);
        assert_eq!(says(&root, "cpu/cpu1/online"), "1");
        assert_eq!(says(&root, "memory/memory8/state"), "online");
        for (path, left) in
            [("cpu/cpufreq/online", "0\n"), ("memory/memory9/state", "going-offline\n")]
        {
            assert_eq!(says(&root, path), left, "{path}");
        }
        // Somebody switches it off; the agent starts anew.
        put(&root, &format!("{SYSTEM}/cpu/cpu1/online"), "0\n");
        at_start(&root, &|_| true);
        assert_eq!(says(&root, "cpu/cpu1/online"), "0\n");
    }

    #[test]
    fn the_kernels_command_line_keeps_off_what_it_names() {
        let root = machine("kept-off");
        put(&root, "proc/cmdline", "console=ttyS0 maxcpus=1\n");
        at_start(&root, &|_| true);
        assert_eq!(says(&root, "cpu/cpu1/online"), "0\n");
        assert_eq!(says(&root, "memory/memory8/state"), "online");
    }

    #[test]
    fn one_that_is_added_is_switched_on_if_it_is_off() {
        let root = machine("added");
        let mut online = Online::default();
        for added in [Added::Cpu(1), Added::Cpu(1), Added::Cpu(2), Added::Cpu(99), Added::Memory(8)]
        {
            online.bring(&root, added);
            if added == Added::Cpu(1) {
                // As the kernel shows it.
                put(&root, &format!("{SYSTEM}/cpu/cpu1/online"), "1\n");
            }
        }
        assert_eq!(online, Online { cpus: 1, blocks: 1 });
    }
}
