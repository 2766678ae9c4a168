//! Which file systems to freeze for a snapshot, in which order, and which hooks to run.

#[cfg(feature = "alloc")]
pub mod filesystems;

use core::time::Duration;

/// Maximum duration of a freeze; writers block until it ends.
pub const LONGEST: Duration = Duration::from_secs(3600);

/// Suffixes of files that editors and package managers leave; qemu-ga's script skips them, too.
const IGNORED: &str = "~ .bak .orig .rpmnew .rpmorig .rpmsave .sample .swp";

/// Returns whether a file in a directory of hooks (for a snapshot, or after a restore) is a hook.
pub fn is_hook(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    !(name.starts_with(b".")
        || name.windows(6).any(|part| part == b".dpkg-")
        || IGNORED.split(' ').any(|ending| name.ends_with(ending.as_bytes())))
}

/// Parses a time such as `90`, `60s` or `5m`, from one second up to [`LONGEST`].
pub fn length(text: &str) -> Option<Duration> {
    let (number, unit) = match text.strip_suffix('m') {
        Some(number) => (number, 60),
        None => (text.strip_suffix('s').unwrap_or(text), 1),
    };
    let seconds = crate::report::proc::number(number.as_bytes())?.checked_mul(unit)?;
    (1..=LONGEST.as_secs()).contains(&seconds).then(|| Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignores_backup_files_of_hooks() {
        for name in ["mysql-flush", "10-db.sh", "/etc/.d/a.b"] {
            assert!(is_hook(name.as_bytes()), "{name}");
        }
        for name in ["x~", "a/.x", "x.bak", "x.rpmsave", "x.dpkg-dist", "x.sample"] {
            assert!(!is_hook(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn reads_times_in_seconds_or_minutes() {
        let seconds = |text| length(text).map(|length| length.as_secs());
        for (text, wanted) in [("1", 1), ("60s", 60), ("5m", 300), ("60m", 3600)] {
            assert_eq!(seconds(text), Some(wanted), "{text}");
        }
        for text in ["", "s", "0", "-1", "61m", "3601", "1h", "1.5s", "99999999999999999999m"] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
