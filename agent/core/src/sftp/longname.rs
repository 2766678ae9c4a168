//! The `ls -l` line that READDIR sends with each name; OpenSSH's client prints it unchanged.
//!
//! Users and groups are numbers: their names would need NSS, which a static binary does not have.
//! Times are UTC.

use core::fmt::{self, Write};

use super::attrs::Attrs;
use crate::time;

#[derive(Clone, Copy, Debug, Default)]
pub struct Listed {
    /// Either all attributes are present, or only the file's name is known.
    pub attrs: Attrs,
    pub links: u32,
}

/// Files younger than this, in seconds (half a year, as in `ls`), show a time instead of the year.
const RECENT: u64 = 365 * 24 * 3600 / 2;

/// Writes the columns before the name; `now` is in seconds since 1970. Errors: only those of `out`.
pub(super) fn columns(out: &mut impl Write, file: &Listed, now: u64) -> fmt::Result {
    let Attrs { size: Some(size), owner: Some(owner), permissions: Some(mode), times: Some(times) } =
        file.attrs
    else {
        return out.write_str("?????????? ");
    };
    for letter in letters(mode) {
        out.write_char(char::from(letter))?;
    }
    write!(out, " {:>3} {:<8} {:<8} {:>8} ", file.links, owner.0, owner.1, size)?;
    let (time, minute) = (u64::from(times.1), u64::from(times.1) / 60);
    let (year, month, day) = time::civil(minute / (24 * 60));
    let month = usize::try_from(month).ok().and_then(|month| MONTHS.get(month.wrapping_sub(1)));
    write!(out, "{} {day:>2} ", month.unwrap_or(&"???"))?;
    if time <= now && now - time < RECENT {
        write!(out, "{:02}:{:02} ", minute / 60 % 24, minute % 60)
    } else {
        write!(out, "{year:>5} ")
    }
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Formats `st_mode` as `ls` does.
fn letters(mode: u32) -> [u8; 10] {
    let kind = match mode & 0o170_000 {
        0o010_000 => b'p',
        0o020_000 => b'c',
        0o040_000 => b'd',
        0o060_000 => b'b',
        0o100_000 => b'-',
        0o120_000 => b'l',
        0o140_000 => b's',
        _ => b'?',
    };
    let mut letters = *b"?rwxrwxrwx";
    letters[0] = kind;
    for (at, letter) in (0u32..).zip(&mut letters).skip(1) {
        let is_set = mode >> (9 - at) & 1 == 1;
        // The execute bits share their letters with set-user-id, set-group-id and sticky.
        let is_special = at % 3 == 0 && mode >> (12 - at / 3) & 1 == 1;
        let special = if at == 9 { b't' } else { b's' };
        *letter = match (is_set, is_special) {
            (true, false) => *letter,
            (false, false) => b'-',
            (true, true) => special,
            (false, true) => special.to_ascii_uppercase(),
        };
    }
    letters
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sftp::reply::Names;

    const NOW: u64 = 1_767_225_599; // 2025-12-31T23:59:59Z

    fn line(mode: u32, mtime: u32) -> String {
        named(b"n", mode, mtime)
    }

    fn named(name: &[u8], mode: u32, mtime: u32) -> String {
        let attrs = Attrs {
            size: Some(4096),
            owner: Some((0, 1000)),
            permissions: Some(mode),
            times: Some((0, mtime)),
        };
        let mut out = [0; 256];
        let mut names = Names::new(&mut out, 1);
        names.push(name, &Listed { attrs, links: 2 }, NOW);
        let length = names.finish().unwrap();
        // Skips length, type, id, count and name; the line's length comes next.
        assert_eq!(&out[17..17 + name.len()], name, "the name itself is exact");
        let line = &out[4 + 1 + 4 + 4 + 4 + name.len()..length];
        let end = 4 + usize::from(line[3]);
        String::from_utf8_lossy(&line[4..end]).into_owned()
    }

    #[test]
    fn escapes_control_characters_in_names() {
        let shown = named("a\x1b[2J\r\n\u{9b}31m\u{e9}\x7f".as_bytes(), 0, 0);
        assert!(shown.ends_with(" a?[2J??\u{fffd}?31m\u{e9}?"), "{shown}");
        assert!(!shown.contains(char::is_control), "{shown}");
    }

    #[test]
    fn shows_every_file_type_and_special_bit() {
        for (mode, letters) in [
            (0o010_000, "p---------"),
            (0o020_001, "c--------x"),
            (0o060_010, "b-----x---"),
            (0o121_777, "lrwxrwxrwt"),
            (0o141_000, "s--------T"),
            (0o106_111, "---s--s--x"),
            (0, "?---------"),
        ] {
            assert_eq!(&line(mode, 0)[..10], letters);
        }
    }

    #[test]
    fn formats_lines_like_openssh() {
        // The lines of OpenSSH 9.2's `sftp-server`, except for user names.
        for (mode, time, expected) in [
            (0o040_755, NOW, "drwxr-xr-x   2 0        1000         4096 Dec 31 23:59 n"),
            (0o104_644, 951_782_400, "-rwSr--r--   2 0        1000         4096 Feb 29  2000 n"),
            (0, NOW + 1, "?---------   2 0        1000         4096 Jan  1  2026 n"),
            (0, NOW - RECENT, "?---------   2 0        1000         4096 Jul  2  2025 n"),
        ] {
            assert_eq!(line(mode, u32::try_from(time).unwrap()), expected);
        }
    }
}
