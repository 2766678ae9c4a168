//! Hot-plugged CPUs and memory blocks, as the kernel reports them. Each has a file in sysfs that
//! brings it online (Linux, `Documentation/ABI/testing/sysfs-devices-system-cpu` and
//! `sysfs-devices-memory`); only some distributions' udev rules use it.

use crate::hostapi::policy::Part;
use crate::report::proc::{number, words};

/// Beginning of an added device's event (`lib/kobject_uevent.c`): `add@`, path below `/sys`, NUL.
const ADDED: &[u8] = b"add@/devices/system/";

/// A device that may have to be brought online.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    Cpu(u32),
    /// A block of memory, by its number.
    Memory(u32),
}

impl Added {
    /// Parses a path below `/sys/devices/system`, such as `cpu/cpu1` or `memory/memory32`.
    pub fn of_path(path: &[u8]) -> Option<Self> {
        let numbered = |prefix: &[u8]| {
            let number = number(path.strip_prefix(prefix)?)?;
            u32::try_from(number).ok()
        };
        numbered(b"cpu/cpu").map(Self::Cpu).or_else(|| numbered(b"memory/memory").map(Self::Memory))
    }

    pub fn part(self) -> Part {
        match self {
            Self::Cpu(_) => Part::Cpus,
            Self::Memory(_) => Part::Memory,
        }
    }

    /// Returns the name of that file, and its values for offline and online.
    pub fn switch(self) -> [&'static str; 3] {
        match self {
            Self::Cpu(_) => ["online", "0", "1"],
            Self::Memory(_) => ["state", "offline", "online"],
        }
    }

    /// Returns whether the kernel's command line keeps the device offline.
    pub fn is_kept_off(self, line: &[u8]) -> bool {
        let option: &[u8] = match self {
            Self::Cpu(_) => b"maxcpus=",
            Self::Memory(_) => b"memhp_default_state=offline",
        };
        words(line).any(|word| word.starts_with(option))
    }
}

/// Returns the path below `/sys/devices/system` of an event; `None` for other events.
pub fn added(event: &[u8]) -> Option<&[u8]> {
    event.split(|byte| *byte == 0).next()?.strip_prefix(ADDED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_events_of_added_resources() {
        for (event, expected) in [
            (
                &b"add@/devices/system/cpu/cpu1\0ACTION=add\0DEVPATH=/devices/system/cpu/cpu1\0SUBSYSTEM=cpu\0"[..],
                Some(Added::Cpu(1)),
            ),
            (b"add@/devices/system/memory/memory32\0ACTION=add\0", Some(Added::Memory(32))),
            // An event that is truncated after its path, or within it.
            (b"add@/devices/system/memory/memory4294967295", Some(Added::Memory(u32::MAX))),
            (b"add@/devices/system/memory/memory4294967296", None),
            (b"add@/devices/system/cpu/cpu", None),
            (b"add@/devices/system/cpu/cpu1/cache\0", None),
            (b"add@/devices/system/cpu/cpu-1\0", None),
            (b"add@/devices/system/cpu/cpufreq\0", None),
            (b"add@/devices/system/node/node1\0", None),
            (b"online@/devices/system/cpu/cpu1\0ACTION=online\0", None),
            (b"remove@/devices/system/cpu/cpu1\0", None),
            (b"add@/devices/pci0000:00/0000:00:02.0\0", None),
            (b"\0add@/devices/system/cpu/cpu1\0", None),
            (b"libudev\0\xfe\xed\xca\xfe", None),
            (b"", None),
        ] {
            assert_eq!(added(event).and_then(Added::of_path), expected, "{}", event.escape_ascii());
        }
    }

    #[test]
    fn respects_resources_disabled_on_the_kernel_command_line() {
        for (line, is_off) in [
            (&b"console=ttyS0 maxcpus=1\n"[..], [true, false]),
            (b"memhp_default_state=offline quiet", [false, true]),
            (b"memhp_default_state=online_movable xmaxcpus=1 nr_cpus=2", [false, false]),
            (b"", [false, false]),
        ] {
            let found = [Added::Cpu(1), Added::Memory(9)].map(|added| added.is_kept_off(line));
            assert_eq!(found, is_off, "{}", line.escape_ascii());
        }
    }
}
