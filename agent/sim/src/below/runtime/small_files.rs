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

pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read_bounded(path, u64::MAX)?).map_err(|_| ErrorKind::InvalidData.into())
}

pub(crate) fn write_small(path: &Path, bytes: &[u8]) -> io::Result<()> {
    here().files.borrow_mut().insert(path.to_owned(), bytes.to_vec());
    Ok(())
}
