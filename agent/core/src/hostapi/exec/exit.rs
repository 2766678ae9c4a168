//! The exit status of a command as reported to the host, with a shell's values (P§4.1).

/// The exit status of a command that was not found.
pub const NOT_FOUND: i32 = 127;

/// Returns the exit status of a command that could not be run, by its errno: [`NOT_FOUND`], 126 for "not executable", else -1.
pub fn not_run(errno: Option<i32>) -> i32 {
    // Linux has the same numbers on every architecture.
    const EPERM: i32 = 1;
    const ENOENT: i32 = 2;
    const EACCES: i32 = 13;
    const ENOTDIR: i32 = 20;
    match errno {
        Some(ENOENT | ENOTDIR) => NOT_FOUND,
        Some(EACCES | EPERM) => 126,
        Some(_) | None => -1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_is_127_and_forbidden_126() {
        let codes = [1, 2, 7, 13, 20].map(|errno| not_run(Some(errno)));
        assert_eq!((codes, not_run(None)), ([126, 127, -1, 126, 127], -1));
    }
}
