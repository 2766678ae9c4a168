//! The commands `freeze`, `thaw` and `trim`: freeze file systems for a snapshot that the host
//! takes, for a limited time. They need no agent. A guard process thaws even if any other process
//! is killed.

mod guard;
mod hold;
mod hooks;
mod state;

use std::ffi::{CStr, CString};
use std::io;
use std::path::Path;

use mote_core::freeze::filesystems::mounted;
use mote_core::report::proc::mounts::unescape;
use rustix::process::geteuid;

use crate::options::command::Freeze;
use crate::runtime::{io_error, log::frozen, read_bounded};
use crate::{print, sys};

use self::state::{End, Known, State};

/// Exit code of a thaw after which a hook failed. The snapshot is consistent.
const HOOKS: u8 = 5;

#[inline(never)] // the agent itself needs none of its stack
pub(crate) fn run(root: &Path, what: Freeze) -> u8 {
    let mut code = 1;
    let done = match what {
        // Other users cannot read the state and would see "not frozen".
        _ if !geteuid().is_root() => Err(io::ErrorKind::PermissionDenied.into()),
        Freeze::For(length) => guard::start(root, length),
        Freeze::Status => Ok(status(root)),
        Freeze::Thaw => thaw(root, &mut code),
        Freeze::Trim => trim(root),
    };
    let done = done.and_then(|text| {
        let printed = print::out(format_args!("{text}\n"));
        if printed.is_err() && matches!(what, Freeze::For(_)) {
            // Thaw and report an error, so that the caller takes no snapshot.
            let _thawed = thaw(root, &mut code);
        }
        printed
    });
    match done {
        Ok(()) => code = 0,
        Err(why) => print::complain(format_args!("{why}")),
    }
    code
}

fn status(root: &Path) -> String {
    let state = State::look(root);
    match state.until.checked_sub(sys::since_boot()) {
        Some(left) => format!("frozen for another {} s", left.as_secs()),
        None if state.guard.is_some() => "being frozen or thawed".to_owned(),
        None => "not frozen".to_owned(),
    }
}

/// Ends the guard's wait. Without a guard, thaws every frozen file system and runs the hooks that a
/// killed guard did not run.
fn thaw(root: &Path, code: &mut u8) -> io::Result<String> {
    let Known { guard, mut end, mut failed, .. } = State::look(root);
    if let Some(guard) = guard {
        sys::kill(guard, guard::THAW);
        Known { end, failed, .. } = State::left_by(root);
        match end {
            End::Asked => return Ok("thawed".to_owned()),
            End::Open => {}
            End::None | End::Hooks | End::Late | End::Before | End::Stuck => {
                if end == End::Hooks {
                    *code = HOOKS;
                }
                return Err(io_error(format!("{}{failed}", end.words())));
            }
        }
    }
    // Thaw in reverse order: a file system in an image file writes to the one below it.
    let thawed =
        |path: &&CString| sys::freeze::thaw_path(path, sys::since_boot() + hold::THAW) == 0;
    let unguarded = Points::read(root)?.all.iter().rev().filter(thawed).count();
    if end == End::Open {
        hooks::thaw(&hooks::list(root), &mut failed, guard::note);
    }
    // Clear the record, or writers of logs would wait until a killed guard's deadline.
    frozen::forget(root);
    let words = if unguarded > 0 { "thawed file systems that had no guard" } else { end.words() };
    Err(io_error(words.to_owned() + &failed))
}

/// Discards unused blocks (FITRIM). Skips file systems that do not support it.
fn trim(root: &Path) -> io::Result<String> {
    let mut text = "trimmed:".to_owned();
    for point in &Points::read(root)?.all {
        if let Ok(bytes) = sys::freeze::open(point).and_then(|disk| sys::freeze::trim(&disk)) {
            add(&mut text, point);
            text.push(' ');
            text.push_str(&bytes.to_string());
        }
    }
    Ok(text)
}

/// Maximum size of the list of mounts, in bytes.
const MOUNTS: u64 = 1 << 24;

/// Mount points in the order of freezing, the reverse of mounting.
#[derive(Debug, Default)]
struct Points {
    all: Vec<CString>,
    /// Mount points that another mount covers, each after a space. They are not opened, because
    /// their path may lead into a file system that hangs.
    covered: String,
}

impl Points {
    fn read(root: &Path) -> io::Result<Self> {
        let mounts = read_bounded(&root.join("proc/self/mountinfo"), MOUNTS)?;
        let mut points = Self::default();
        for system in mounted(&mounts) {
            let point = CString::new(unescape(system.point).collect::<Vec<_>>())?;
            if system.is_covered {
                add(&mut points.covered, &point);
            } else {
                points.all.push(point);
            }
        }
        Ok(points)
    }
}

fn add(list: &mut String, point: &CStr) {
    list.extend([" ", &point.to_string_lossy()]);
}

fn about(what: &CStr, why: &str) -> String {
    format!("{}: {why}", what.to_string_lossy())
}
