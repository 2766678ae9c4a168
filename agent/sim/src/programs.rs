//! Simulated programs that the agent starts: commands, reports, SFTP sessions, mounts. Each is a
//! process with its own ends of pipes, which close when it ends; the agent is then notified.

use std::ffi::CStr;

use rustix::process::Pid;
use smol::future::{pending, zip};

use crate::agent::SESSIONS;
use crate::plan::{Ended, Plan, Signalled};
use crate::sim_prelude::*;
use crate::sys::fd::{self, BorrowedFd, OwnedFd};

pub(crate) const MISSING: &str = "missing";
pub(crate) const SELF: &CStr = c"/proc/self/exe";
const ENOENT: i32 = 2;
/// The agent kills a hanging report after 2.5 s, and a session 5 s after its connection is closed,
/// which takes up to 2 s.
const REPORT: Micros = 2_700 * MILLI;
const GRACE: Micros = 7_200 * MILLI;
/// The agent kills a mount worker after 10 s.
const MOUNT: Micros = 10_200 * MILLI;

struct Started {
    here: Rc<Here>,
    words: Vec<String>,
    input: OwnedFd,
    output: OwnedFd,
    errors: Option<OwnedFd>,
}

pub(crate) fn spawn(plan: &Plan<'_>) -> io::Result<(Pid, OwnedFd)> {
    let here = here();
    let parent = here.kernel.current(&here.sim).ok_or(io::ErrorKind::Interrupted)?;
    let process = here.sim.process(Zone::Guest);
    let pid = pid(process).ok_or(io::ErrorKind::InvalidInput)?;
    let (failure, report) = fd::pipe()?;
    let own = |end: BorrowedFd<'_>| match end {
        BorrowedFd::Own(end) => Some(end.clone()),
        BorrowedFd::Errors => None,
    };
    let [Some(input), Some(output), errors] = plan.stdio.map(own) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let text = |word: &&CStr| word.to_string_lossy().into_owned();
    let words = plan.arguments.iter().map(text).collect();
    let is_worker = plan.program.name == SELF;
    let started = Started { here: here.clone(), words, input, output, errors };
    here.kernel.children.borrow_mut().insert(process.number, parent);
    here.sim.spawn(process, async move {
        let here = started.here.clone();
        sleep(&here.sim, Zone::Guest, here.sim.dice.between(100, 3 * MILLI)).await;
        let ended = if started.words[0] == MISSING {
            let _told = fd::write(&report, &ENOENT.to_ne_bytes());
            drop(report);
            Ended::Code(127)
        } else {
            drop(report);
            if is_worker { work(started).await } else { command(started).await }
        };
        exit(&here, process, ended);
    });
    Ok((pid, failure))
}

fn pid(process: Process) -> Option<Pid> {
    Pid::from_raw(process.number.cast_signed())
}

fn exit(here: &Here, process: Process, ended: Ended) {
    let parent = here.kernel.children.borrow_mut().remove(&process.number);
    if let (Some(parent), Some(pid)) = (parent, pid(process)) {
        parent.ended.borrow_mut().push_back((pid, ended));
        parent.signal(Signalled::Child);
    }
}

pub(crate) fn kill(child: Pid, signal: i32) {
    let here = here();
    let number = child.as_raw_nonzero().get().cast_unsigned();
    if here.kernel.children.borrow().contains_key(&number) {
        let process = Process { zone: Zone::Guest, number };
        here.sim.kill(process);
        exit(&here, process, Ended::Signal(signal));
    }
}

pub(crate) fn kill_group(child: Pid) {
    kill(child, 9);
}

pub(crate) fn reap() -> Option<(Pid, Ended)> {
    let here = here();
    here.kernel.current(&here.sim)?.ended.borrow_mut().pop_front()
}

pub(crate) fn pattern(from: usize, count: usize) -> Vec<u8> {
    (from..from + count).map(|at| (at % 251).to_le_bytes()[0]).collect()
}

/// Returns a command's exit code, which depends on its input.
pub(crate) fn code(read: usize) -> i32 {
    i32::try_from(read % 100).unwrap_or(0)
}

/// Runs a command. Its words are name, output length, run time, and whether it reads to the end.
async fn command(started: Started) -> Ended {
    let Started { here, words, input, output, errors } = started;
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<usize>().ok()).unwrap_or(0);
    let (count, micros, reads) = (number(1), number(2) as Micros * MILLI, number(3) == 1);
    let read = async {
        let (mut all, mut scrap) = (0, [0; 4096]);
        if reads {
            while let Ok(count @ 1..) = input.stream().read(&mut scrap).await {
                all += count;
            }
        }
        drop(input);
        all
    };
    let write = async {
        let (mut written, rest) = (0, micros / 4);
        let begins_late = here.sim.dice.one_in(2);
        if begins_late {
            // The command's last output comes directly before its end.
            sleep(&here.sim, Zone::Guest, rest * 3).await;
        }
        while written < count {
            let piece = (count - written).min(1 + here.sim.dice.up_to(20_000));
            if output.stream().write_all(&pattern(written, piece)).await.is_err() {
                return false;
            }
            written += piece;
            if here.sim.dice.one_in(4) {
                sleep(&here.sim, Zone::Guest, rest / 4).await;
            }
        }
        if !begins_late {
            sleep(&here.sim, Zone::Guest, rest * 3).await;
        }
        drop((output, errors));
        true
    };
    match zip(read, write).await {
        (all, true) => Ended::Code(code(all)),
        // No reader is left for its output.
        (_, false) => Ended::Signal(13),
    }
}

async fn work(started: Started) -> Ended {
    let is = |word: &str| started.words.iter().any(|other| other == word);
    if is("report") {
        report(started).await
    } else if is("sftp-server") {
        session(started).await
    } else {
        mount(started).await
    }
}

async fn report(started: Started) -> Ended {
    let Started { here, output, .. } = started;
    let _wait = here.oracle.wait("a report's process", REPORT);
    sleep(&here.sim, Zone::Guest, here.sim.dice.between(MILLI, 200 * MILLI)).await;
    match here.sim.dice.below(32) {
        0 => pending().await,
        1 => Ended::Signal(9),
        2 => Ended::Code(1),
        _ => {
            drop(output.stream().write_all(b"{}\n").await);
            Ended::Code(0)
        }
    }
}

/// Mounts a share. The agent kills a hanging mount.
async fn mount(started: Started) -> Ended {
    let Started { here, input, output, .. } = started;
    if !matches!(input.stream().read(&mut [0; 1]).await, Ok(1)) {
        // The agent asks for agent-mounts.json, which has no shares.
        return Ended::Code(0);
    }
    let _one = One::more(&here, "mounts", |kernel| &kernel.mounts, 1);
    let _wait = here.oracle.wait("a mount's process", MOUNT);
    sleep(&here.sim, Zone::Guest, here.sim.dice.between(MILLI, 500 * MILLI)).await;
    if here.sim.dice.one_in(16) {
        pending::<()>().await;
    }
    drop(output.stream().write_all(b"mounted\n").await);
    Ended::Code(0)
}

/// Echoes each byte until the client disconnects; a hanging session does not end.
async fn session(started: Started) -> Ended {
    let Started { here, input, .. } = started;
    let sim = &here.sim;
    let _one = One::more(&here, "SFTP sessions", |kernel| &kernel.sessions, SESSIONS);
    echo(&here, input.stream()).await;
    let _wait = here.oracle.wait("an SFTP session without its client", GRACE);
    if sim.dice.one_in(8) {
        pending::<()>().await;
    }
    sleep(sim, Zone::Guest, sim.dice.between(MILLI, 300 * MILLI)).await;
    Ended::Code(0)
}

/// Counts a running process of one kind; dropping it ends the count.
struct One(Rc<Here>, fn(&Kernel) -> &Cell<usize>);

impl One {
    fn more(here: &Rc<Here>, what: &str, of: fn(&Kernel) -> &Cell<usize>, most: usize) -> Self {
        let count = of(&here.kernel);
        count.set(count.get() + 1);
        here.oracle.at_most(what, count.get(), most);
        Self(here.clone(), of)
    }
}

impl Drop for One {
    fn drop(&mut self) {
        let count = (self.1)(&self.0.kernel);
        count.set(count.get() - 1);
    }
}

pub(crate) async fn echo(here: &Here, stream: &Stream) {
    let mut piece = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut piece).await {
        if here.sim.dice.one_in(8) {
            sleep(&here.sim, Zone::Guest, here.sim.dice.between(MILLI, SECOND / 10)).await;
        }
        if stream.write_all(&piece[..count]).await.is_err() {
            return;
        }
    }
}
