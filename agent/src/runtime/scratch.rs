//! Directories for tests.

use std::ops::Deref;
use std::path::{Path, PathBuf};

pub(crate) struct Scratch(PathBuf);

impl Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for Scratch {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _best_effort = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn scratch(name: &str) -> Scratch {
    let path = std::env::temp_dir().join(format!("mote-{name}-{}", std::process::id()));
    let _stale = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    // The temporary directory may be behind a symbolic link.
    Scratch(path.canonicalize().unwrap())
}

/// Writes a file below `root`, and creates its directories.
pub(crate) fn put(root: &Path, path: &str, content: impl AsRef<[u8]>) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

pub(crate) fn put_mode(root: &Path, path: &str, content: impl AsRef<[u8]>, mode: u32) {
    put(root, path, content);
    chmod(&root.join(path), mode);
}

pub(crate) fn chmod(path: &Path, mode: u32) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(path, mode).unwrap();
}
