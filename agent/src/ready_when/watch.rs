//! The process that looks until all conditions have held.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use mote_core::ready_when::{Calm, Condition, is_default_level, listens, starts_services};

use crate::config::policy;
use crate::options::Options;
use crate::runtime::small_files::{is_there, text_of};
use crate::sys;
use crate::system::devices::entries;
use crate::workers::command;

/// Interval of looks.
const LOOK: Duration = Duration::from_secs(1);
/// Longest time for a command; it is then killed, and tried again.
const COMMAND: Duration = Duration::from_secs(10);

/// Ends with success once all have held, each once; with failure when the agent is gone, or if there are none.
#[inline(never)] // the agent itself needs none of its stack
pub(crate) fn run(options: &Options) -> ExitCode {
    let root = options.root.as_path();
    let policy = policy::read(options);
    let (mut done, mut calm) = (ExitCode::FAILURE, Calm::default());
    for next in policy.ready_when() {
        while !holds(root, next, &mut calm) {
            if sys::readable(std::io::stdin().as_fd(), sys::since_boot() + LOOK) {
                return ExitCode::FAILURE;
            }
        }
        done = ExitCode::SUCCESS;
    }
    done
}

fn holds(root: &Path, text: &str, calm: &mut Calm) -> bool {
    let Some(condition) = Condition::parse(text) else { return false };
    let tables: &[&str] = match condition {
        Condition::Init => return init_is_done(root, calm),
        Condition::CloudInit => return !text_of(root, "run/cloud-init/result.json").is_empty(),
        Condition::Port(_) => &["proc/net/tcp", "proc/net/tcp6"],
        Condition::Socket(_) => &["proc/net/unix"],
        Condition::Command(words) => return ends(words, 0),
    };
    tables.iter().any(|table| listens(text_of(root, table).as_bytes(), condition))
}

fn init_is_done(root: &Path, calm: &mut Calm) -> bool {
    if is_there(root, "run/systemd/system") {
        // It waits for the end of the boot; 1 says that a unit has failed, or that it cannot ask yet.
        let wait = "/usr/bin/systemctl is-system-running --wait --quiet";
        return calm.is_done(!ends(wait, 1));
    }
    let level = text_of(root, "run/openrc/softlevel");
    if !level.is_empty() {
        return is_default_level(&level, is_there(root, "run/openrc/rc.starting"));
    }
    let is_script = |process: &PathBuf| starts_services(text_of(process, "comm").trim_ascii_end());
    calm.is_done(entries(&root.join("proc")).iter().any(is_script))
}

/// Whether a command ends in time, with an exit code up to this.
#[inline(never)] // its size
fn ends(words: &str, most: i32) -> bool {
    // In place of the spaces.
    let whole = words.replace(' ', "\0") + "\0";
    let mut words = Vec::new();
    for word in whole.as_bytes().split_inclusive(|byte| *byte == 0) {
        words.extend(CStr::from_bytes_with_nul(word).ok());
    }
    let nothing = File::options().read(true).write(true).open("/dev/null");
    nothing.is_ok_and(|nothing| {
        command::run(&words, nothing.as_fd(), COMMAND).is_ok_and(|code| code <= most)
    })
}
