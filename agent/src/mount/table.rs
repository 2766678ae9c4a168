//! `/proc/self/mountinfo` (proc(5)): who is mounted where.

use alloc::string::String;
use alloc::vec::Vec;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The mount point, as it is seen now.
    pub point: String,
    /// The file system's name.
    pub kind: String,
    /// What was mounted: for a share its tag.
    pub source: String,
}

/// The lines, the first mounted first. What is no such line, or not UTF-8, is left out.
pub fn entries(table: &[u8]) -> impl DoubleEndedIterator<Item = Entry> {
    table.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut words = line.split(|byte| *byte == b' ');
        let point = unescaped(words.nth(4)?)?;
        // Optional fields, then a single dash.
        words.find(|word| *word == b"-")?;
        Some(Entry { point, kind: unescaped(words.next()?)?, source: unescaped(words.next()?)? })
    })
}

/// Space, tab, newline and backslash are written as three octal digits.
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
    fn lines_are_read_with_their_escapes_and_optional_fields() {
        let table = b"22 28 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n\
            98 28 0:43 / /mnt/a\\040b\\134c\\011 ro - virtiofs lxd_my--disk ro\n\
            99 28 0:44 / /mnt/x rw shared:1 master:2 - 9p a\\040b rw,trans=virtio\n\
            garbage\n\n1 2 3 4 /x - \n";
        let all: Vec<_> = entries(table).collect();
        let entry = |point: &str, kind: &str, source: &str| Entry {
            point: point.into(),
            kind: kind.into(),
            source: source.into(),
        };
        assert_eq!(
            all,
            [
                entry("/sys", "sysfs", "sysfs"),
                entry("/mnt/a b\\c\t", "virtiofs", "lxd_my--disk"),
                entry("/mnt/x", "9p", "a b"),
            ]
        );
        assert_eq!(entries(table).next_back(), Some(entry("/mnt/x", "9p", "a b")));
    }

    #[test]
    fn what_is_no_escape_stays() {
        for (raw, text) in [("\\", "\\"), ("a\\09", "a\\09"), ("\\777", "\\777"), ("\\0", "\\0")] {
            assert_eq!(unescaped(raw.as_bytes()).as_deref(), Some(text));
        }
    }
}
