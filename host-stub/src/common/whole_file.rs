//! Files that are replaced whole, and the ends of files.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The end of a file: at most so many bytes.
pub(crate) fn end_of(path: &Path, most: u64) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Replaces a file: after a crash there is the old or the new content, never a mixture.
pub(crate) fn write_whole(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let write = || -> std::io::Result<()> {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        // The name is in the directory, and is on disk only with it.
        path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
    };
    write().with_context(|| path.display().to_string())
}
