//! Small files, in memory.

use std::io::{self, ErrorKind};
use std::path::Path;

use crate::below::here::here;

pub(crate) fn read_bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let bytes = here().files.borrow().get(path).cloned().ok_or(ErrorKind::NotFound)?;
    if bytes.len() as u64 > most { Err(ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

pub(crate) fn read_if_there(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    match read_bounded(path, most) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

pub(crate) fn text_of(directory: &Path, path: &str) -> String {
    let text = read_bounded(&directory.join(path), u64::MAX).unwrap_or_default();
    String::from_utf8(text).unwrap_or_default()
}

pub(crate) fn write_small(path: &Path, bytes: &[u8]) -> io::Result<()> {
    here().files.borrow_mut().insert(path.to_owned(), bytes.to_vec());
    Ok(())
}
