//! Directories for tests.

use std::path::PathBuf;

/// An empty directory for one test.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("mote-{name}-{}", std::process::id()));
    let _stale = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}
