//! NICs that the host plugs in while the VM runs, as the kernel tells of them.

use core::time::Duration;

use crate::report::proc::number;
use crate::time::Uptime;

/// How long after that a NIC may be given another name by the system, whose rules know nothing of the host's.
const SETTLES: Duration = Duration::from_secs(5);

/// So long after that the host tells of it at the latest: Incus does once its database has it.
const HOST_EVENT_WINDOW: Duration = Duration::from_secs(30);

/// What the kernel calls a NIC that may have no driver yet (virtio 1.2, 5: device type 1).
const VIRTIO: &[u8] = b"MODALIAS=virtio:d00000001v";

/// The NICs that have just been plugged in.
#[derive(Debug, Default)]
pub struct Plugged {
    /// The least of their numbers: the kernel counts up.
    first: u32,
    /// When the last one came.
    last: Option<Uptime>,
}

impl Plugged {
    /// Takes an event. The number from which on links are to be named, if it is about one of these: it is new, or has just been
    /// renamed. Links that are no devices, such as those of containers, are none of the host's. A device that may need a driver
    /// has no number: it gives the highest one, or that of another which came just before.
    pub fn see(&mut self, event: &[u8], now: Uptime) -> Option<u32> {
        let mut words = event.split(|byte| *byte == 0);
        let path = words.next().unwrap_or_default();
        let is_new = path.starts_with(b"add@");
        let path = path.strip_prefix(if is_new { &b"add@"[..] } else { b"move@" })?;
        if path.starts_with(b"/devices/virtual/") {
            return None;
        }
        let index = words.find_map(|word| match word.strip_prefix(b"IFINDEX=") {
            Some(index) => u32::try_from(number(index)?).ok(),
            None => word.starts_with(VIRTIO).then_some(u32::MAX),
        })?;
        let is_late = !self.came_within(SETTLES, now);
        if is_new {
            self.first = if is_late { index } else { self.first.min(index) };
            self.last = Some(now);
        } else if is_late || index < self.first {
            return None;
        }
        Some(self.first)
    }

    /// The same of one that the host tells of.
    #[must_use]
    pub fn announced_after_event(&self, now: Uptime) -> Option<u32> {
        self.came_within(HOST_EVENT_WINDOW, now).then_some(self.first)
    }

    fn came_within(&self, time: Duration, now: Uptime) -> bool {
        self.last.is_some_and(|last| now < last + time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Uptime {
        Uptime::default() + Duration::from_secs(seconds)
    }

    const ADDED: &[u8] = b"add@/devices/pci0000:00/0000:00:05.0/virtio4/net/eth0\0ACTION=add\0\
        SUBSYSTEM=net\0INTERFACE=eth0\0IFINDEX=4\0SEQNUM=912\0";
    const RENAMED: &[u8] = b"move@/devices/pci0000:00/0000:00:05.0/virtio4/net/enp0s5\0ACTION=move\0\
        DEVPATH_OLD=/devices/pci0000:00/0000:00:05.0/virtio4/net/eth0\0INTERFACE=enp0s5\0IFINDEX=4\0";

    #[test]
    fn one_that_is_plugged_in_is_told_from_all_else() {
        for event in [
            &b"add@/devices/virtual/net/veth0\0ACTION=add\0IFINDEX=4\0"[..],
            b"add@/devices/pci0000:00/0000:00:05.0/virtio4\0ACTION=add\0SUBSYSTEM=virtio\0\
                MODALIAS=virtio:d00000002v00001AF4\0",
            b"remove@/devices/pci0000:00/0000:00:05.0/virtio4/net/eth0\0IFINDEX=4\0",
            // Cut off within.
            b"add@/devices/pci0000:00/0000:00:05.0/virtio4/net/eth0\0ACTION=add\0IFINDEX=",
            b"add@/devices/x/net/eth0\0IFINDEX=4294967296\0",
            b"add@/devices/x/net/eth0\0IFINDEX=-1\0",
            b"libudev\0\xfe\xed\xca\xfe",
            RENAMED,
            b"",
        ] {
            assert_eq!(Plugged::default().see(event, at(9)), None, "{}", event.escape_ascii());
        }
        assert_eq!(Plugged::default().see(ADDED, at(9)), Some(4));
    }

    #[test]
    fn it_is_named_again_if_the_system_renames_it_right_after_but_nobody_later() {
        let mut plugged = Plugged::default();
        let other = b"move@/devices/pci0000:00/0000:00:03.0/virtio1/net/lan\0IFINDEX=2\0";
        assert_eq!(plugged.see(ADDED, at(9)), Some(4));
        assert_eq!(plugged.see(RENAMED, at(10)), Some(4));
        assert_eq!(plugged.see(other, at(10)), None, "it was there before");
        assert_eq!(plugged.see(RENAMED, at(14)), None, "an administrator");
    }

    #[test]
    fn one_that_the_host_tells_of_has_just_come() {
        let mut plugged = Plugged::default();
        assert_eq!(plugged.announced_after_event(at(1)), None);
        assert_eq!(plugged.see(ADDED, at(9)), Some(4));
        assert_eq!(plugged.announced_after_event(at(38)), Some(4));
        assert_eq!(plugged.announced_after_event(at(39)), None, "of which is it?");
    }

    #[test]
    fn one_without_a_driver_is_told_of_before_it_has_a_number() {
        let mut plugged = Plugged::default();
        let device =
            b"add@/devices/pci0000:00/0000:00:05.0/virtio4\0ACTION=add\0SUBSYSTEM=virtio\0\
            MODALIAS=virtio:d00000001v00001AF4\0";
        assert_eq!(plugged.see(device, at(9)), Some(u32::MAX));
        assert_eq!(plugged.see(ADDED, at(9)), Some(4));
        assert_eq!(plugged.see(device, at(10)), Some(4), "another one");
    }

    #[test]
    fn of_several_at_once_none_is_forgotten() {
        let mut plugged = Plugged::default();
        let next = b"add@/devices/pci0000:00/0000:00:06.0/virtio5/net/eth1\0IFINDEX=5\0";
        assert_eq!(plugged.see(ADDED, at(9)), Some(4));
        assert_eq!(plugged.see(next, at(9)), Some(4));
        assert_eq!(plugged.see(next, at(60)), Some(5), "the first has a name since long");
    }
}
