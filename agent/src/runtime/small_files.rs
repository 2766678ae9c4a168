//! Reading and writing of small files as a whole.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

/// Bytes that any file with data has allocated, so that overwriting them needs no free space.
const PAGE: usize = 4096;

/// Reads a whole file of at most `most` bytes.
///
/// # Errors
/// `FileTooLarge` if it is longer; any error of open(2) and read(2).
pub(crate) fn read_bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let read = File::open(path)?.take(most + 1).read_to_end(&mut out)?;
    if u64::try_from(read).unwrap_or(u64::MAX) > most {
        return Err(ErrorKind::FileTooLarge.into());
    }
    Ok(out)
}

/// Writes a small file atomically, by a new file that is renamed. If the file system is full it overwrites the
/// existing file instead, padded with spaces; a reader may then see a part of the old text, and must read again.
///
/// # Errors
/// Any error of open(2), write(2) and rename(2); `StorageFull` if the text is longer than a page or there is no
/// file to overwrite.
#[inline(never)] // its size
pub(crate) fn write_small(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let whole = fs::write(&beside, bytes).and_then(|()| fs::rename(&beside, path));
    let Err(why) = whole else { return Ok(()) };
    let _part = fs::remove_file(&beside);
    let file = File::options().write(true).open(path);
    match (why.kind(), file) {
        (ErrorKind::StorageFull, Ok(mut file)) if bytes.len() <= PAGE => {
            let length = usize::try_from(file.metadata()?.len()).unwrap_or(PAGE).min(PAGE);
            let mut padded = bytes.to_vec();
            padded.resize(length.max(bytes.len()), b' ');
            file.write_all(&padded)
        }
        _ => Err(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let directory = crate::runtime::scratch::scratch("small");
        let path = directory.join("status");
        for text in ["a long one", "short", ""] {
            write_small(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        }
        let nowhere = write_small(&directory.join("none/status"), b"").unwrap_err();
        assert_eq!(nowhere.kind(), ErrorKind::NotFound);
    }
}
