//! Reads the mount table `/proc/self/mountinfo` (proc(5)).

use alloc::string::String;

use super::Kind;
use crate::report::proc::mountinfo::{Mounted, is_over};
use crate::report::proc::mounts::unescape;
use crate::report::proc::number;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The mount's ID, unique while it is mounted.
    pub id: u64,
    pub point: String,
    pub kind: String,
    /// The mounted device; for a share its mount tag.
    pub source: String,
}

/// Returns the mounts in the order of mounting. Skips lines that are malformed or not UTF-8.
pub fn entries(table: &[u8]) -> impl DoubleEndedIterator<Item = Entry> {
    let text = |field: &[u8]| String::from_utf8(unescape(field).collect()).ok();
    table.split(|byte| *byte == b'\n').filter_map(move |line| {
        let Mounted { id, point, kind, source, .. } = Mounted::parse(line)?;
        Some(Entry {
            id: number(id)?,
            point: text(point)?,
            kind: text(kind)?,
            source: text(source)?,
        })
    })
}

/// Returns the shares for which `chosen` is true, latest first, each with the mount that covers it.
/// That mount prevents unmounting: umount(2) removes the latest mount at a path.
pub fn shares(
    table: &[Entry],
    chosen: impl Fn(&Entry) -> bool,
) -> impl Iterator<Item = (&Entry, Option<&Entry>)> {
    table.iter().enumerate().rev().filter_map(move |(at, entry)| {
        let is_share = Kind::parse(&entry.kind).is_some() && chosen(entry);
        let mut later = table.iter().skip(at + 1).rev();
        let cover = later.find(|later| is_over(later.point.as_bytes(), entry.point.as_bytes()));
        is_share.then_some((entry, cover))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_a_share_with_the_mount_that_covers_it() {
        let table = b"1 0 0:1 / / rw - ext4 x rw\n\
            2 1 0:2 / /a rw - virtiofs one rw\n\
            3 1 0:3 / /b rw - virtiofs one rw\n\
            4 1 0:4 / /b rw - tmpfs one rw\n\
            5 1 0:5 / /c rw - 9p two rw\n\
            6 1 0:6 / /c rw - virtiofs one rw\n\
            7 1 0:7 / /d/e rw - virtiofs three rw\n\
            8 1 0:8 / /d rw - tmpfs over rw\n";
        let table: Vec<_> = entries(table).collect();
        let found = |chosen: fn(&Entry) -> bool| -> Vec<_> {
            let ids = |(share, cover): (&Entry, Option<&Entry>)| (share.id, cover.map(|by| by.id));
            shares(&table, chosen).map(ids).collect()
        };
        assert_eq!(found(|entry| entry.source == "one"), [(6, None), (3, Some(4)), (2, None)]);
        assert_eq!(found(|entry| entry.point == "/b"), [(3, Some(4))]);
        assert_eq!(found(|entry| entry.source == "two"), [(5, Some(6))]);
        assert_eq!(found(|entry| entry.source == "three"), [(7, Some(8))]);
        assert_eq!(found(|entry| entry.source == "x"), []);
    }
}
