//! The process that looks until all conditions have held.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use mote_core::ready_when::{Calm, Condition, is_default_level, listens, starts_services};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::config::policy;
use crate::options::Options;
use crate::runtime::small_files::read_text;
use crate::system::devices::entries;
use crate::workers::command;

/// Interval of looks.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Longest time for a command; it is then killed, and tried again.
const COMMAND: Duration = Duration::from_secs(10);

/// Ends with success once all have held, each once; with failure when the agent is gone, or if there are none.
#[inline(never)] // the agent itself needs none of its stack
pub(crate) fn run(options: &Options) -> ExitCode {
    let root = options.root.as_path();
    let policy = policy::read(options);
    let all = policy.ready_when();
    let (mut left, mut calm) = (all.as_slice(), Calm::default());
    while let Some((next, others)) = left.split_last() {
        if holds(root, next, &mut calm) {
            left = others;
        } else if poll(&mut [PollFd::new(&std::io::stdin(), PollFlags::IN)], Some(&LOOK)) != Ok(0) {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::from(u8::from(all.is_empty()))
}

fn holds(root: &Path, text: &str, calm: &mut Calm) -> bool {
    let tables: &[&str] = match Condition::parse(text) {
        Some(Condition::Init) => return init_is_done(root, calm),
        Some(Condition::CloudInit) => return !file(root, "run/cloud-init/result.json").is_empty(),
        Some(Condition::Port(_)) => &["proc/net/tcp", "proc/net/tcp6"],
        Some(Condition::Socket(_)) => &["proc/net/unix"],
        Some(Condition::Command(words)) => return ends(words, 0),
        None => return false,
    };
    tables.iter().any(|table| listens(file(root, table).as_bytes(), text))
}

fn init_is_done(root: &Path, calm: &mut Calm) -> bool {
    if root.join("run/systemd/system").exists() {
        // It waits for the end of the boot; 1 says that a unit has failed, or that it cannot ask yet.
        let wait = "/usr/bin/systemctl is-system-running --wait --quiet";
        return calm.is_done(!ends(wait, 1));
    }
    let level = file(root, "run/openrc/softlevel");
    if !level.is_empty() {
        return is_default_level(&level, root.join("run/openrc/rc.starting").exists());
    }
    let is_script = |process: &PathBuf| starts_services(file(process, "comm").trim_ascii_end());
    calm.is_done(entries(&root.join("proc")).iter().any(is_script))
}

/// A small file's text, if it can be read.
#[inline(never)] // its size
fn file(root: &Path, path: &str) -> String {
    read_text(&root.join(path)).unwrap_or_default()
}

/// Whether a command ends in time, with an exit code up to this.
#[inline(never)] // its size
fn ends(words: &str, most: i32) -> bool {
    // In place of the spaces.
    let whole = words.replace(' ', "\0") + "\0";
    let words = whole.as_bytes().split_inclusive(|byte| *byte == 0);
    let words: Vec<_> = words.flat_map(CStr::from_bytes_with_nul).collect();
    let nothing = File::options().read(true).write(true).open("/dev/null");
    nothing.is_ok_and(|nothing| {
        command::run(&words, nothing.as_fd(), COMMAND).is_ok_and(|code| code <= most)
    })
}
