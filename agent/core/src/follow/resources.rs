//! CPUs and blocks of memory that the host adds while the VM runs, as the kernel tells of them. It does not use them
//! by itself: each has a switch in sysfs (Linux, `Documentation/ABI/testing/sysfs-devices-system-cpu` and
//! `sysfs-devices-memory`), which udev's rules of some distributions turn.

use core::fmt;

use crate::hostapi::policy::Part;
use crate::report::proc::number;

/// Beginning of the event of one that is added (`lib/kobject_uevent.c`): `add@`, its path below `/sys`, then NUL.
const ADDED: &[u8] = b"add@/devices/system/";

/// One that may have to be switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// A CPU, by its number.
    Cpu(u32),
    /// A block of memory, by its number.
    Memory(u32),
}

impl Added {
    /// What the event tells of; nothing if it is another event.
    #[must_use]
    pub fn of_event(event: &[u8]) -> Option<Self> {
        let path = event.split(|byte| *byte == 0).next()?.strip_prefix(ADDED)?;
        Self::of_path(path)
    }

    /// That of a path below `/sys/devices/system`, such as `cpu/cpu1` or `memory/memory32`.
    #[must_use]
    pub fn of_path(path: &[u8]) -> Option<Self> {
        let numbered = |prefix: &[u8]| {
            let number = number(path.strip_prefix(prefix)?)?;
            u32::try_from(number).ok()
        };
        numbered(b"cpu/cpu").map(Self::Cpu).or_else(|| numbered(b"memory/memory").map(Self::Memory))
    }

    /// What the policy calls it.
    #[must_use]
    pub fn part(self) -> Part {
        match self {
            Self::Cpu(_) => Part::Cpus,
            Self::Memory(_) => Part::Memory,
        }
    }

    /// What its switch says while it is off, and what turns it on.
    #[must_use]
    pub fn off_and_on(self) -> (&'static str, &'static str) {
        match self {
            Self::Cpu(_) => ("0", "1"),
            Self::Memory(_) => ("offline", "online"),
        }
    }
}

/// The path of its switch below `/sys/devices/system`.
impl fmt::Display for Added {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu(number) => write!(out, "cpu/cpu{number}/online"),
            Self::Memory(number) => write!(out, "memory/memory{number}/state"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn events_of_what_is_added_are_told_from_all_others() {
        for (event, expected) in [
            (
                &b"add@/devices/system/cpu/cpu1\0ACTION=add\0DEVPATH=/devices/system/cpu/cpu1\0SUBSYSTEM=cpu\0"[..],
                Some(Added::Cpu(1)),
            ),
            (b"add@/devices/system/memory/memory32\0ACTION=add\0", Some(Added::Memory(32))),
            // Cut off after its path, or within.
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
            assert_eq!(Added::of_event(event), expected, "{}", event.escape_ascii());
        }
    }

    #[test]
    fn each_has_its_switch() {
        assert_eq!(Added::Cpu(7).to_string(), "cpu/cpu7/online");
        assert_eq!(Added::Memory(40).to_string(), "memory/memory40/state");
    }
}
