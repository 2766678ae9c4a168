//! Reads and writes small files as a whole.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{FileType, OFlags, fstat, fsync};
use rustix::io::{Errno, retry_on_intr};

use crate::runtime::io_error;
use crate::sys::file;

/// Bytes that every file with data occupies, so that overwriting them needs no free space.
const PAGE: usize = 4096;

/// Maximum size of a text, in bytes: `modules.dep` has about 1 MiB. A sandboxed agent could write
/// more to `/run/mote/ready`.
const TEXT: u64 = 4 * 1024 * 1024;

/// Maximum size of a document on a worker's standard input, in bytes: a pipe's capacity.
pub(crate) const MAX_DOCUMENT: u64 = 64 * 1024;

/// Reads a whole file of at most `most` bytes.
/// Errors: `FileTooLarge` if it is longer; any error of open(2) and read(2).
pub(crate) fn read_bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_to_end(file::open(path, OFlags::RDONLY)?.as_fd(), most)
}

/// Opens a regular file for reading. Refuses others, because a FIFO could block and a terminal
/// could become the controlling one. Errors: it is another file; any error of open(2).
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let file = file::open(path, OFlags::NONBLOCK | OFlags::NOCTTY)?;
    let kind = FileType::from_raw_mode(fstat(&file)?.st_mode);
    if kind.is_file() { Ok(file) } else { Err(io_error("not a regular file")) }
}

/// Like [`read_bounded`], but fails unless this is a regular file.
pub(crate) fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_to_end(open_regular(path)?.as_fd(), most)
}

/// Reads a whole regular file of at most `most` bytes; `None` if the name does not exist. A
/// dangling symbolic link exists, also as a directory, because its target may be on a disk that is
/// not mounted yet.
/// Errors: `FileTooLarge`; it exists and is not a regular file; any error of open(2) and read(2).
pub(crate) fn read_if_there(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    match read_regular(path, most) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound && is_absent(path) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns whether the name does not exist, and its closest existing parent is a directory.
fn is_absent(path: &Path) -> bool {
    let is_there = |path: &&Path| !matches!(file::lstat(path), Err(Errno::NOENT));
    let last = path.ancestors().find(is_there);
    let is_directory = |path| file::open(path, OFlags::PATH | OFlags::DIRECTORY).is_ok();
    last.is_none_or(|last| last != path && is_directory(last))
}

/// Reads a whole file of the kernel or of root, of at most [`TEXT`] bytes.
/// Errors: `InvalidData` if it is not UTF-8; as [`read_bounded`].
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let text = read_bounded(path, TEXT)?;
    String::from_utf8(text).map_err(|_| ErrorKind::InvalidData.into())
}

/// Returns the text of a small file below a directory, or an empty string if it cannot be read.
pub(crate) fn text_of(directory: &Path, path: &str) -> String {
    read_text(&directory.join(path)).unwrap_or_default()
}

pub(crate) fn is_there(directory: &Path, path: &str) -> bool {
    file::exists(&directory.join(path))
}

/// Reads the rest of an open file, at most `most` bytes.
/// Errors: `FileTooLarge` if it is longer; any error of read(2).
pub(crate) fn read_to_end(file: BorrowedFd<'_>, most: u64) -> io::Result<Vec<u8>> {
    let (mut out, mut piece) = (Vec::new(), [0; PAGE]);
    loop {
        match retry_on_intr(|| rustix::io::read(file, &mut piece))? {
            0 => return Ok(out),
            count => out.extend_from_slice(piece.get(..count).unwrap_or_default()),
        }
        if u64::try_from(out.len()).unwrap_or(u64::MAX) > most {
            return Err(ErrorKind::FileTooLarge.into());
        }
    }
}

/// Creates a directory and its parents with mode 0755, whatever the umask: `/run` is shared.
pub(crate) fn make_directory(directory: &Path) -> io::Result<()> {
    let mut made = file::mkdir(directory);
    if let (Err(Errno::NOENT), Some(above)) = (made, directory.parent()) {
        make_directory(above)?;
        made = file::mkdir(directory);
    }
    match made {
        Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(()) => Ok(file::chmod(directory, 0o755)?),
    }
}

/// Writes a small file atomically, through a new file that is renamed. If the file system is full
/// or the sandbox forbids new files, overwrites the existing file, padded with spaces. A reader may
/// then see a mixture and must read again. Errors: any error of open(2), write(2) and rename(2);
/// `StorageFull` if the text exceeds a page or there is no file to overwrite.
pub(crate) fn write_small(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(path, bytes, false)
}

/// Writes a small file through a new one, synced and renamed: after a power cut, the file has the
/// old or the new content.
pub(crate) fn write_lasting(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(path, bytes, true)
}

fn replace(path: &Path, bytes: &[u8], lasts: bool) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = Path::new(&beside);
    // The bytes must reach the disk before the name. The directory is synced if possible.
    let sync = |path| if lasts { fsync(&file::open(path, OFlags::RDONLY)?) } else { Ok(()) };
    let whole = file::write(beside, bytes)
        .and_then(|()| Ok(sync(beside)?))
        .and_then(|()| Ok(file::rename(beside, path)?));
    let Err(why) = whole else {
        let _said = sync(path.parent().unwrap_or(path));
        return Ok(());
    };
    let _part = file::unlink(beside);
    let file = file::open(path, OFlags::WRONLY);
    match (why.kind(), file) {
        (ErrorKind::StorageFull | ErrorKind::PermissionDenied, Ok(mut file))
            if bytes.len() <= PAGE && !lasts =>
        {
            let length = usize::try_from(fstat(&file)?.st_size).unwrap_or(PAGE).min(PAGE);
            let mut padded = bytes.to_vec();
            padded.resize(length.max(bytes.len()), b' ');
            file.write_all(&padded)
        }
        _ => Err(why),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn replaces_a_file_whole_and_leaves_no_temporary_file() {
        let directory = crate::runtime::scratch("small");
        let path = directory.join("status");
        fs::write(directory.join("status.new"), "what a killed agent left").unwrap();
        for text in ["a long one", "short", ""] {
            write_small(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        }
        let nowhere = write_small(&directory.join("none/status"), b"").unwrap_err();
        assert_eq!(nowhere.kind(), ErrorKind::NotFound);
        let kept = directory.join("kept");
        for text in ["a long one", "short"] {
            write_lasting(&kept, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&kept).unwrap(), text);
            assert_eq!(fs::read_dir(&directory).unwrap().count(), 2);
        }
        assert!(write_lasting(&directory.join("none/kept"), b"").is_err());
        fs::create_dir(directory.join("full")).unwrap();
        assert!(write_lasting(&directory.join("full"), b"").is_err());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 3);
    }
}
