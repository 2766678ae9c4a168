//! Reads the mount table `/proc/self/mountinfo` (proc(5)).

use alloc::string::String;
use alloc::vec::Vec;

use super::Kind;
use crate::report::proc::mountinfo::is_over;
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
    table.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut words = line.split(|byte| *byte == b' ');
        let id = number(words.next()?)?;
        let point = unescaped(words.nth(3)?)?;
        // Optional fields, then a single dash.
        words.find(|word| *word == b"-")?;
        let (kind, source) = (unescaped(words.next()?)?, unescaped(words.next()?)?);
        Some(Entry { id, point, kind, source })
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

/// Returns the text of a field, in which space, tab, newline and backslash are escaped as three
/// octal digits.
fn unescaped(word: &[u8]) -> Option<String> {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((byte, after)) = rest.split_first() {
        let code = after.first_chunk::<3>().filter(|_| *byte == b'\\').and_then(octal);
        out.push(code.unwrap_or(*byte));
        rest = if code.is_some() { after.get(3..).unwrap_or_default() } else { after };
    }
    String::from_utf8(out).ok()
}

fn octal(digits: &[u8; 3]) -> Option<u8> {
    digits.iter().try_fold(0u8, |value, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 8)?;
        value.checked_mul(8)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lines_with_escapes_and_optional_fields() {
        let table = b"22 28 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n\
            98 28 0:43 / /mnt/a\\040b\\134c\\011 ro - virtiofs lxd_my--disk ro\n\
            99 28 0:44 / /mnt/x rw shared:1 master:2 - 9p a\\040b rw,trans=virtio\n\
            garbage\n\n1 2 3 4 /x - \n";
        let all: Vec<_> = entries(table).collect();
        let entry = |id, point: &str, kind: &str, source: &str| Entry {
            id,
            point: point.into(),
            kind: kind.into(),
            source: source.into(),
        };
        assert_eq!(
            all,
            [
                entry(22, "/sys", "sysfs", "sysfs"),
                entry(98, "/mnt/a b\\c\t", "virtiofs", "lxd_my--disk"),
                entry(99, "/mnt/x", "9p", "a b"),
            ]
        );
        assert_eq!(entries(table).next_back(), Some(entry(99, "/mnt/x", "9p", "a b")));
    }

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

    #[test]
    fn keeps_invalid_escapes() {
        for (raw, text) in [("\\", "\\"), ("a\\09", "a\\09"), ("\\777", "\\777"), ("\\0", "\\0")] {
            assert_eq!(unescaped(raw.as_bytes()).as_deref(), Some(text));
        }
    }
}
