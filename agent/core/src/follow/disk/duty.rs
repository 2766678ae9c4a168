//! When something is done with a disk, and what: by events and sizes.

use crate::follow::event::says;

/// Whether a kernel event tells of a disk that is new or has another size.
#[must_use]
pub fn is_event(event: &[u8]) -> bool {
    let is_new = event.starts_with(b"add@") && !event.starts_with(b"add@/devices/virtual/");
    says(event, b"RESIZE=1") || is_new && says(event, b"DEVTYPE=disk")
}

/// What is done with a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Duty {
    /// Nothing: its size is the one that was noted.
    None,
    /// Its size is noted.
    Note,
    /// What was begun with it and cut off is done to its end.
    Finish,
    /// It is grown, if its table tells that it has become larger.
    Look,
    /// It has become larger, and is grown.
    Grow,
}

impl Duty {
    /// By its size, and by that which was noted of this very disk in this boot, 0 if none was. A disk that is plugged in is as it
    /// is meant to be; when a system starts, there may be others that grow what has become larger.
    #[must_use]
    pub fn of(before: u64, now: u64, is_live: bool, has_others: bool) -> Self {
        match before {
            0 if is_live => Self::Note,
            0 if has_others => Self::Finish,
            0 => Self::Look,
            before if before < now => Self::Grow,
            before if before == now => Self::None,
            _ => Self::Note,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: u64 = 20_480;
    const NEW: u64 = 40_960;

    #[test]
    fn events_of_disks_are_told_from_others() {
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
            assert_eq!(is_event(event), is_disk, "{}", event.escape_ascii());
        }
    }

    #[test]
    fn a_disk_is_grown_if_it_was_seen_smaller_or_at_the_start_if_its_table_says_so() {
        for (before, is_live, has_others, expected) in [
            // As it is when a system starts.
            (0, false, false, Duty::Look),
            (0, false, true, Duty::Finish),
            // One that is plugged in later.
            (0, true, false, Duty::Note),
            (0, true, true, Duty::Note),
            (OLD, true, true, Duty::Grow),
            (OLD, false, true, Duty::Grow),
            (NEW, true, false, Duty::None),
            (NEW, false, false, Duty::None),
            (NEW + 1, true, false, Duty::Note),
        ] {
            assert_eq!(Duty::of(before, NEW, is_live, has_others), expected, "{before} {is_live}");
        }
        assert!(Duty::Note < Duty::Finish);
    }
}
