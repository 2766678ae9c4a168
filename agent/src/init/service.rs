//! The services of process 1: the agent and the configured programs.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use mote_core::hostapi::exec;
use mote_core::init::plan::Program;
use mote_core::init::shutdown::Restarts;
use mote_core::time::Uptime;
use rustix::io::Errno;
use rustix::process::{Pid, WaitStatus};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stdin};
use rustix::termios::isatty;

use crate::runtime::log;
use crate::sys::file::{self, OFlags};
use crate::sys::{PATH, Plan, SELF, spawn};

const ENVIRONMENT: [&CStr; 3] = [PATH, c"HOME=/root", c"TERM=linux"];

pub(crate) struct Service {
    pub(crate) role: Role,
    program: Program,
    restarts: Restarts,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Agent,
    /// The program whose controlling terminal is the console; there can be only one.
    Foreground,
    Background,
}

enum State {
    Due(Uptime),
    /// The program runs; the pipe returns the errno of a failed start ([`spawn`]).
    Runs(Pid, Uptime, OwnedFd),
    Over,
}

impl Service {
    pub(crate) fn agent(options: Vec<CString>) -> Self {
        let mut arguments = vec![c"mote-agent".to_owned()];
        arguments.extend(options);
        Self { role: Role::Agent, ..Self::program(Program { arguments, respawn: true }) }
    }

    pub(crate) fn program(program: Program) -> Self {
        let (restarts, state) = (Restarts::default(), State::Due(Uptime::default()));
        Self { role: Role::Background, program, restarts, state }
    }

    pub(crate) fn due(&self) -> Option<Uptime> {
        if let State::Due(due) = self.state { Some(due) } else { None }
    }

    pub(crate) fn is(&self, process: Pid) -> bool {
        matches!(self.state, State::Runs(pid, ..) if pid == process)
    }

    pub(crate) fn start(&mut self, now: Uptime) {
        match self.spawn() {
            Ok((pid, failure)) => self.state = State::Runs(pid, now, failure),
            Err(error) => self.again(now, now, true, format_args!("{error}")),
        }
    }

    fn spawn(&self) -> io::Result<(Pid, OwnedFd)> {
        let arguments: Vec<_> = self.program.arguments.iter().map(CString::as_c_str).collect();
        let name = arguments.first().copied().filter(|_| self.role != Role::Agent).unwrap_or(SELF);
        // If both devices are missing, use process 1's standard input.
        let console = open_console().ok();
        let console = console.as_ref().map_or(stdin(), AsFd::as_fd);
        spawn(&Plan {
            program: exec::Program { name, path: exec::PATH },
            arguments: &arguments,
            environment: &ENVIRONMENT,
            stdio: [console; 3],
            directory: Some(c"/"),
            ids: None,
            terminal: self.role == Role::Foreground && isatty(console),
        })
    }

    /// Handles the program's end; schedules a restart if one is wanted and the system `is_up`.
    pub(crate) fn ended(&mut self, now: Uptime, status: WaitStatus, is_up: bool) {
        let mut errno = [0; 4];
        let State::Runs(_, since, failure) = std::mem::replace(&mut self.state, State::Over) else {
            return;
        };
        if rustix::io::read(&failure, &mut errno) == Ok(errno.len()) {
            let why = io::Error::from_raw_os_error(i32::from_ne_bytes(errno));
            self.again(since, now, is_up, format_args!("{why}"));
        } else if let Some(signal) = status.terminating_signal() {
            self.again(since, now, is_up, format_args!("ended by signal {signal}"));
        } else {
            let code = status.exit_status().unwrap_or_default();
            self.again(since, now, is_up, format_args!("ended with exit code {code}"));
        }
    }

    fn again(&mut self, since: Uptime, now: Uptime, is_up: bool, why: std::fmt::Arguments<'_>) {
        self.state = State::Over;
        let name = self.program.arguments.first();
        let name = name.map(|name| name.to_string_lossy()).unwrap_or_default();
        if !is_up {
            return;
        }
        if !self.program.respawn {
            log::info(format_args!("{name}: {why}"));
            return;
        }
        let pause = self.restarts.pause(now - since);
        let (seconds, tenths) = (pause.as_secs(), pause.subsec_millis() / 100);
        log::warn(format_args!("{name}: {why}; restarting in {seconds}.{tenths} s"));
        self.state = State::Due(now + pause);
    }
}

/// Opens the console, or `/dev/null` without one. It does not become a controlling terminal.
fn open_console() -> Result<OwnedFd, Errno> {
    let open = |path: &str| file::open(path.as_ref(), OFlags::RDWR | OFlags::NOCTTY);
    open("/dev/console").or_else(|_| open("/dev/null")).map(OwnedFd::from)
}

/// Makes the console standard input, output and error, if it can be opened.
pub(crate) fn use_console() {
    if let Ok(console) = open_console() {
        for set in [dup2_stdin, dup2_stdout, dup2_stderr] {
            let _as_before = set(&console);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::process::{WaitOptions, waitpid};

    use super::*;

    fn run(service: &mut Service, now: Uptime, is_up: bool) {
        service.start(now);
        let State::Runs(pid, ..) = service.state else { panic!("it does not run") };
        assert!(service.is(pid) && service.due().is_none());
        let (_, status) = waitpid(Some(pid), WaitOptions::empty()).unwrap().unwrap();
        service.ended(now, status, is_up);
    }

    fn program(name: &CStr, respawn: bool) -> Service {
        Service::program(Program { arguments: vec![name.to_owned()], respawn })
    }

    #[test]
    fn restart_pauses_grow() {
        for name in [c"false", c"/nowhere/program"] {
            let mut service = program(name, true);
            let mut now = Uptime::from_millis(1000);
            assert!(service.due() < Some(now));
            for pause in [100, 200, 400] {
                run(&mut service, now, true);
                assert_eq!(service.due(), Some(now + Duration::from_millis(pause)), "{name:?}");
                now = now + Duration::from_secs(1);
            }
        }
    }

    #[test]
    fn restarts_nothing_else_or_during_a_shutdown() {
        for (respawn, is_up) in [(false, true), (true, false)] {
            let mut service = program(c"true", respawn);
            run(&mut service, Uptime::from_millis(1000), is_up);
            assert_eq!(service.due(), None);
        }
    }
}
