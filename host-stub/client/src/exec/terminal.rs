//! This process's terminal: its size, and a raw mode that always ends.

use std::fs::File;
use std::io::{stdin, stdout};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};

pub fn is_both() -> bool {
    isatty(stdin()) && isatty(stdout())
}

pub fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(stdout()).or_else(|_| tcgetwinsize(stdin())).ok()?;
    Some((size.ws_col, size.ws_row))
}

/// Raw mode until dropped.
pub struct Raw(());

/// The terminal's mode before raw mode, while it is raw.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

pub fn restore() {
    if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        // Drain it first, so that the command's last output is shown in raw mode.
        let _gone = tcsetattr(stdin(), OptionalActions::Drain, &before);
    }
}

impl Raw {
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

/// Returns a standard stream without std's buffer.
pub fn unbuffered(stream: impl AsFd) -> Result<File> {
    Ok(stream.as_fd().try_clone_to_owned()?.into())
}
