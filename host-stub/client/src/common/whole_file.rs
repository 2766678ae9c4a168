//! Replaces files atomically, and returns the ends of files.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

pub fn end_of(file: &File, most: usize) -> std::io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(most).min(most)];
    let begin = length - u64::try_from(bytes.len()).unwrap_or(length);
    file.read_exact_at(&mut bytes, begin)?;
    Ok(bytes)
}

/// Returns the end of a log of QEMU or of its helper processes. A guest can make it arbitrarily
/// large.
pub fn end_of_log(path: &Path) -> String {
    let bytes = File::open(path).and_then(|file| end_of(&file, 64 * 1024));
    String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
}

/// Replaces a file. After a crash it has the old or the new content, never a mixture.
pub fn write_whole(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let write = || -> std::io::Result<()> {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        // The rename is on disk only once the directory has been synced.
        path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
    };
    write().with_context(|| path.display().to_string())
}
