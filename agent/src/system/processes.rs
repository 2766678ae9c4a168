//! Determines a process's user. A process's name proves nothing: any user can choose it.

use std::path::Path;

use crate::runtime::text_of;

pub(crate) const ROOT: u32 = 0;
/// The highest user id of a service: `SYS_UID_MAX` of Debian's and Fedora's login.defs.
pub(crate) const SERVICES: u32 = 999;

/// Returns whether the real user id of the process with this `/proc` directory is at most `most`.
/// For a setuid program that is the user who started it.
pub(crate) fn is_of(process: &Path, most: u32) -> bool {
    let status = text_of(process, "status");
    let user = users(status.as_bytes()).split(|byte| *byte == b'\t').next();
    let user = user.and_then(|user| std::str::from_utf8(user).ok()?.parse().ok());
    user.is_some_and(|user: u32| user <= most)
}

/// Returns the user ids in a process's `status`: real, effective, saved and file system, separated
/// by tabs.
pub(crate) fn users(status: &[u8]) -> &[u8] {
    after(status, "\nUid:\t").unwrap_or_default()
}

/// Returns the text after the first occurrence of `part`.
pub(crate) fn after<'a>(text: &'a [u8], part: &str) -> Option<&'a [u8]> {
    let at = text.windows(part.len()).position(|there| there == part.as_bytes())?;
    text.get(at + part.len()..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_user_counts() {
        let process = crate::runtime::scratch("whose");
        for (users, expected) in [
            ("0\t0\t0\t0", [true, true]),
            ("102\t102\t102\t102", [false, true]),
            ("1000\t0\t0\t0", [false, false]),
            ("100000\t100000\t100000\t100000", [false, false]),
            ("", [false, false]),
        ] {
            let status =
                format!("Name:\tx\\nUid:\t0\nState:\tS\nUid:\t{users}\nGid:\t0\t0\t0\t0\n");
            std::fs::write(process.join("status"), status).unwrap();
            assert_eq!([ROOT, SERVICES].map(|most| is_of(&process, most)), expected, "{users}");
        }
        assert!(!is_of(&process.join("none"), SERVICES));
    }
}
