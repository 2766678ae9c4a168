//! Hot-plugged devices, CPUs and memory, as the kernel reports them: in events of words that end
//! with NUL (`lib/kobject_uevent.c`).

pub mod disk;
pub mod nics;
pub mod resources;

/// Returns whether a program triggered this event, such as `udevadm trigger` for all devices at
/// boot (Linux, `Documentation/ABI/testing/sysfs-uevent`).
pub fn is_made_up(event: &[u8]) -> bool {
    says(event, b"SYNTH_UUID=")
}

pub fn is_of_disk(event: &[u8]) -> bool {
    let is_new = event.starts_with(b"add@") && !event.starts_with(b"add@/devices/virtual/");
    says(event, b"RESIZE=1") || is_new && says(event, b"DEVTYPE=disk")
}

/// Returns whether a word of the event begins with `beginning`.
#[inline(never)] // its size
fn says(event: &[u8], beginning: &[u8]) -> bool {
    event.split(|byte| *byte == 0).any(|word| word.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_events_triggered_by_programs() {
        for (event, expected) in [
            (&b"add@/devices/system/cpu/cpu1\0ACTION=add\0SUBSYSTEM=cpu\0SYNTH_UUID=0\0SEQNUM=9\0"[..], true),
            (b"change@/devices/x/block/vda\0SYNTH_UUID=fe4d7c9d-b8c6-4a70-9ef1-3d8a58d18eed\0SYNTH_ARG_RESIZE=1\0", true),
            (b"add@/devices/system/cpu/cpu1\0ACTION=add\0SUBSYSTEM=cpu\0SEQNUM=9\0", false),
            (b"add@/devices/SYNTH_UUID=0\0", false),
            (b"", false),
        ] {
            assert_eq!(is_made_up(event), expected, "{}", event.escape_ascii());
        }
    }

    #[test]
    fn recognises_disk_events() {
        for (event, is_disk) in [
            (
                &b"change@/devices/virtio2/block/vda\0ACTION=change\0SUBSYSTEM=block\0RESIZE=1\0"[..],
                true,
            ),
            (b"change@/devices/virtio2/block/vda\0ACTION=change\0SUBSYSTEM=block\0", false),
            (b"add@/devices/virtio2/block/vda\0X=RESIZE=1\0", false),
            (b"add@/devices/virtio2/block/vda\0ACTION=add\0DEVNAME=vda\0DEVTYPE=disk\0", true),
            (b"add@/devices/virtio2/block/vda/vda1\0ACTION=add\0DEVTYPE=partition\0", false),
            (b"add@/devices/virtual/block/loop0\0ACTION=add\0DEVTYPE=disk\0", false),
            (b"remove@/devices/virtio2/block/vda\0ACTION=remove\0DEVTYPE=disk\0", false),
            (b"", false),
        ] {
            assert_eq!(is_of_disk(event), is_disk, "{}", event.escape_ascii());
        }
    }
}
