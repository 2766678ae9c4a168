//! Programs with a time limit, so that no test hangs.

use std::io::Result;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::patient;

/// Limit for any program that a test waits for: longer than the slowest takes on an idle machine.
const LIMIT: Duration = Duration::from_secs(300);

/// Starts a program and kills it if it has not ended within [`LIMIT`] on an idle machine.
pub fn bounded(command: &mut Command) -> Result<Child> {
    start(command, patient(LIMIT))
}

/// Runs a program without input within that limit, as [`Command::output`] does.
pub fn output(command: &mut Command) -> Result<Output> {
    let pipe = Stdio::piped;
    bounded(command.stdin(Stdio::null()).stdout(pipe()).stderr(pipe()))?.wait_with_output()
}

fn start(command: &mut Command, limit: Duration) -> Result<Child> {
    let child = command.spawn()?;
    // Nobody has reaped it yet, so its id is still valid.
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    let name = format!("{command:?}");
    thread::spawn(move || {
        let limit = Timespec::try_from(limit).expect("a limit");
        let ended = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit));
        if ended == Ok(0) && pidfd_send_signal(&process, Signal::KILL).is_ok() {
            eprintln!("killed, since it did not end: {name}");
        }
    });
    Ok(child)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn ends_a_program_that_never_ends() {
        let mut cat = Command::new("cat");
        cat.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut cat = start(&mut cat, Duration::from_millis(50)).expect("cat");
        let count = cat.stdout.as_mut().expect("its output").read(&mut [0]).expect("a read");
        assert_eq!((count, cat.wait().expect("its end").code()), (0, None));
    }
}
