//! Kernel events of devices, as words that end with NUL (`lib/kobject_uevent.c`).

/// Whether a program has had the kernel make this event, as `udevadm trigger` does for all devices when a system starts
/// (Linux, `Documentation/ABI/testing/sysfs-uevent`): nothing has happened.
#[must_use]
pub fn is_made_up(event: &[u8]) -> bool {
    says(event, b"SYNTH_UUID=")
}

/// Whether an event has a word that begins so.
#[inline(never)] // its size
pub(super) fn says(event: &[u8], beginning: &[u8]) -> bool {
    event.split(|byte| *byte == 0).any(|word| word.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_asks_for_is_told_from_what_has_happened() {
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
}
