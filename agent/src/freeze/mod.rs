//! File systems frozen for a snapshot that the host makes, for a limited time: the commands `freeze`, `thaw` and `trim`. They need
//! no agent. What is frozen is thawed by a process of its own, whoever else is killed meanwhile.

mod disks;
mod guard;
mod hooks;
mod state;

use std::io;
use std::path::Path;
use std::process::ExitCode;

use rustix::process::geteuid;

use crate::options::command::Freeze;
use crate::print;
use crate::runtime::log::frozen;
use crate::sys;

use self::disks::{Disks, add};
use self::state::{End, State};

/// Runs the command.
#[inline(never)] // the agent itself needs none of its stack
pub(crate) fn run(root: &Path, what: Freeze) -> ExitCode {
    let done = match what {
        // Others cannot see what is frozen, and would be told that nothing is.
        _ if !geteuid().is_root() => Err(io::ErrorKind::PermissionDenied.into()),
        Freeze::For(length) => guard::start(root, length),
        Freeze::Status => Ok(status(root)),
        Freeze::Thaw => thaw(root),
        Freeze::Trim => trim(root),
    };
    let done = done.and_then(|text| {
        let told = print::out(format_args!("{text}\n"));
        if told.is_err() && matches!(what, Freeze::For(_)) {
            // It is an error to the caller, who makes no snapshot.
            let _thawed = thaw(root);
        }
        told
    });
    if let Err(why) = &done {
        print::complain(format_args!("{why}"));
    }
    ExitCode::from(u8::from(done.is_err()))
}

fn status(root: &Path) -> String {
    let state = State::look(root);
    match state.until.checked_sub(sys::since_boot()) {
        Some(left) => format!("frozen for {} s more", left.as_secs()),
        None if state.guard.is_some() => "being frozen or thawed".to_owned(),
        None => "not frozen".to_owned(),
    }
}

/// Ends the guard's wait. Without one, thaws what is frozen, whoever did it.
#[inline(never)] // its size
fn thaw(root: &Path) -> io::Result<String> {
    let state = State::look(root);
    if let Some(guard) = state.guard {
        sys::kill(guard, guard::THAW);
        return match State::left_by(root).end {
            End::Asked => Ok("thawed".to_owned()),
            end @ (End::None | End::Late | End::Before) => Err(io::Error::other(end.words())),
        };
    }
    let disks = Disks::open(root)?;
    // Each of them, not only the first; the last one first: thawing one that lies in a file of another writes to that.
    let unguarded = disks.open.iter().rev().filter(|disk| sys::freeze::thaw(disk)).count();
    // Else who writes a log waits until the time of a guard that was killed.
    frozen::forget(root);
    Err(io::Error::other(if unguarded > 0 {
        "thawed what was frozen without a guard"
    } else {
        state.end.words()
    }))
}

/// Tells the disks what is not used. Those that take no such thing are left out.
fn trim(root: &Path) -> io::Result<String> {
    let disks = Disks::open(root)?;
    let mut text = "trimmed:".to_owned();
    for (point, disk) in disks.points.iter().zip(&disks.open) {
        if let Ok(bytes) = sys::freeze::trim(disk) {
            add(&mut text, point);
            add(&mut text, &bytes.to_string());
        }
    }
    Ok(text)
}
