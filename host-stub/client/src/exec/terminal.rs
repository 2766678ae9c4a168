//! Our own terminal: whether there is one, its size, and raw mode that is always taken back.

use std::io::{stdin, stdout};
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};

/// Whether both ends of ours are a terminal.
pub fn is_both() -> bool {
    isatty(stdin()) && isatty(stdout())
}

/// Columns and rows.
pub fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(stdout()).or_else(|_| tcgetwinsize(stdin())).ok()?;
    Some((size.ws_col, size.ws_row))
}

/// Raw mode; ends when dropped.
pub struct Raw(());

/// What our terminal was before raw mode, while it is in it.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Ends raw mode, if it is on.
pub fn restore() {
    if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        // Drained: what the command wrote last is shown as it meant it.
        let _gone = tcsetattr(stdin(), OptionalActions::Drain, &before);
    }
}

impl Raw {
    /// Begins, if stdin is a terminal.
    pub fn begin() -> Result<Option<Self>> {
        if !isatty(stdin()) {
            return Ok(None);
        }
        let before = tcgetattr(stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Now, &raw)?;
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        Ok(Some(Self(())))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

/// stdin's mode as it is now; it is so again when this is dropped, whatever was done to it.
pub struct Kept(Option<Termios>);

impl Kept {
    /// From now on.
    pub fn now() -> Self {
        Self(if isatty(stdin()) { tcgetattr(stdin()).ok() } else { None })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _gone = tcsetattr(stdin(), OptionalActions::Drain, before);
        }
    }
}

/// Writes all of it, unbuffered.
pub fn write_all(to: impl std::os::fd::AsFd, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(&to, bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
