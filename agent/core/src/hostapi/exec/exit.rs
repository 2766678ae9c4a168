//! The exit status of a command as reported to the host, with a shell's values (P§4.1).

/// Returns the exit status of a command that a signal has killed.
pub fn signalled(signal: i32) -> i32 {
    128 + signal
}

/// Returns the exit status of a command that could not be run, by its errno: 127 for "not found",
/// 126 for "not executable", else -1.
pub fn not_run(errno: Option<i32>) -> i32 {
    // Linux has the same numbers on every architecture.
    const EPERM: i32 = 1;
    const ENOENT: i32 = 2;
    const EACCES: i32 = 13;
    const ENOTDIR: i32 = 20;
    match errno {
        Some(ENOENT | ENOTDIR) => 127,
        Some(EACCES | EPERM) => 126,
        Some(_) | None => -1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_reported_above_128() {
        assert_eq!((signalled(9), signalled(15)), (137, 143));
    }

    #[test]
    fn missing_is_127_and_forbidden_126() {
        let not_run_kind = |kind: std::io::ErrorKind| {
            // The errno of that kind on the machine that runs this test.
            let error = (1..40).map(std::io::Error::from_raw_os_error).find(|it| it.kind() == kind);
            not_run(error.unwrap().raw_os_error())
        };
        assert_eq!(not_run_kind(std::io::ErrorKind::NotFound), 127);
        assert_eq!(not_run_kind(std::io::ErrorKind::NotADirectory), 127);
        assert_eq!(not_run_kind(std::io::ErrorKind::PermissionDenied), 126);
        assert_eq!((not_run(Some(13)), not_run(Some(7)), not_run(None)), (126, -1, -1));
    }
}
