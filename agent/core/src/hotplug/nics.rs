//! Hot-plugged NICs, as the kernel reports them.

use core::time::Duration;

use crate::report::proc::number;
use crate::time::Uptime;

/// Period in which the system's rules, which ignore the host's name, may rename a new NIC.
const SETTLES: Duration = Duration::from_secs(5);

/// Maximum delay of the host's own event: Incus sends it once its database has the NIC.
const HOST_EVENT_WINDOW: Duration = Duration::from_secs(30);

/// The kernel's event for a virtio NIC, maybe without a driver yet (virtio 1.2, 5: device type 1).
const VIRTIO: &[u8] = b"MODALIAS=virtio:d00000001v";

#[derive(Debug, Default)]
pub struct Plugged {
    /// The lowest interface index of the recent NICs.
    first: u32,
    last: Option<Uptime>,
}

impl Plugged {
    /// Takes an event. If it reports a new NIC, or that a recent NIC was renamed, returns the
    /// lowest index of the links that must be named. Ignores virtual links, such as containers'.
    /// For a device without a driver (no index yet), returns that of another recent NIC, or the
    /// highest value.
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

    /// Handles the host's own event for a new NIC: returns the lowest recent index, or `None` if
    /// the kernel reported no NIC within [`HOST_EVENT_WINDOW`].
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
    use crate::time::at;

    const ADDED: &[u8] = b"add@/devices/pci0000:00/0000:00:05.0/virtio4/net/eth0\0ACTION=add\0\
        SUBSYSTEM=net\0INTERFACE=eth0\0IFINDEX=4\0SEQNUM=912\0";
    const RENAMED: &[u8] = b"move@/devices/pci0000:00/0000:00:05.0/virtio4/net/enp0s5\0ACTION=move\0\
        DEVPATH_OLD=/devices/pci0000:00/0000:00:05.0/virtio4/net/eth0\0INTERFACE=enp0s5\0IFINDEX=4\0";

    #[test]
    fn recognises_a_hot_plugged_nic() {
        for event in [
            &b"add@/devices/virtual/net/veth0\0ACTION=add\0IFINDEX=4\0"[..],
            b"add@/devices/pci0000:00/0000:00:05.0/virtio4\0ACTION=add\0SUBSYSTEM=virtio\0\
                MODALIAS=virtio:d00000002v00001AF4\0",
            b"remove@/devices/pci0000:00/0000:00:05.0/virtio4/net/eth0\0IFINDEX=4\0",
            // Truncated.
            b"add@/devices/pci0000:00/0000:00:05.0/virtio4/net/eth0\0ACTION=add\0IFINDEX=",
            b"add@/devices/x/net/eth0\0IFINDEX=4294967296\0",
            b"add@/devices/x/net/eth0\0IFINDEX=-1\0",
            b"libudev\0\xfe\xed\xca\xfe",
            RENAMED,
            b"",
        ] {
            assert_eq!(Plugged::default().see(event, at(9000)), None, "{}", event.escape_ascii());
        }
        assert_eq!(Plugged::default().see(ADDED, at(9000)), Some(4));
    }

    #[test]
    fn names_recent_nics_from_the_lowest_index() {
        const DEVICE: &[u8] =
            b"add@/devices/pci0000:00/0000:00:05.0/virtio4\0ACTION=add\0SUBSYSTEM=virtio\0\
            MODALIAS=virtio:d00000001v00001AF4\0";
        let next = &b"add@/devices/pci0000:00/0000:00:06.0/virtio5/net/eth1\0IFINDEX=5\0"[..];
        let other = &b"move@/devices/pci0000:00/0000:00:03.0/virtio1/net/lan\0IFINDEX=2\0"[..];
        for (events, why) in [
            (
                &[
                    (ADDED, 9, Some(4)),
                    (RENAMED, 10, Some(4)),
                    (other, 10, None),
                    (RENAMED, 14, None),
                ][..],
                "a NIC that existed before, and an administrator's name",
            ),
            // The event before the driver is bound; then that of another NIC.
            (
                &[(DEVICE, 9, Some(u32::MAX)), (ADDED, 9, Some(4)), (DEVICE, 10, Some(4))],
                "a device",
            ),
            (&[(ADDED, 9, Some(4)), (next, 9, Some(4)), (next, 60, Some(5))], "several at once"),
        ] {
            let mut plugged = Plugged::default();
            assert_eq!(plugged.announced_after_event(at(1000)), None);
            for (event, seconds, expected) in events {
                assert_eq!(plugged.see(event, at(seconds * 1000)), *expected, "{why}: {seconds}");
            }
        }
    }

    #[test]
    fn accepts_the_hosts_event_only_for_a_recent_nic() {
        let mut plugged = Plugged::default();
        assert_eq!(plugged.see(ADDED, at(9000)), Some(4));
        assert_eq!(plugged.announced_after_event(at(38_000)), Some(4));
        assert_eq!(plugged.announced_after_event(at(39_000)), None, "no longer recent");
    }
}
