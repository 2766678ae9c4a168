//! Detects that the VM resumed, was restored or cloned, and reseeds, steps the clock and reconnects
//! to the host.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use mote_core::hostapi::event::RESTORED;
use mote_core::hostapi::policy::Capability;
use mote_core::json::Document;
use mote_core::resume::clock::{Cause, Difference};
use mote_core::resume::{Announcements, Returns, Signs};
use rustix::fs::{Mode, fchmod};
use rustix::io::{pread, pwrite, read};
use smol::future::{FutureExt, pending};

use crate::agent::Agent;
use crate::runtime::{Async, log, now, run_dir};
use crate::sys::file::{self, OFlags};
use crate::sys::restored::wall;
use crate::sys::sandbox;
use crate::system::signs;
use crate::workers::after_resume::{CLOCK, STOPPED_CLOCK};
use crate::workers::run;

/// Minimum interval between two reads of the RTC, since the agent may wake much more often;
/// [`Agent::settled`] ignores it.
const LOOKS: Duration = Duration::from_secs(3);
/// Time limit for reseeding and setting the clock, and so for the wait of [`Agent::settled`].
const LIMIT: Duration = Duration::from_secs(10);
const ROOT: &str = "/";
const AFTER_RESUME: &str = "after-resume";
/// Maximum size of a worker's output, in bytes.
const OUTPUT: usize = 4096;

/// Watches for signs of a resume, forever. Does nothing in the sandbox or with another `--root`,
/// because it changes the whole machine.
pub(crate) async fn run(agent: Rc<Agent>) {
    let is_ours = agent.options.root == Path::new(ROOT) && !sandbox::is_entered();
    let links = is_ours.then(signs::announcements).flatten();
    let Some(Ok(links)) = links.map(Async::new_nonblocking) else { return };
    let (mut watch, mut signs) = (Watch::new(links), Signs::default());
    agent.watches_resume.set(true);
    loop {
        let woken = agent.woken.seen();
        if watch.returns.is_over() {
            signs = Signs::default();
        }
        watch.look(&agent, &mut signs);
        if watch.returns.is_another(now(), signs) {
            let words = [AFTER_RESUME, watch.clock_word(&agent)];
            match run::run(&agent, &words, &[], OUTPUT, LIMIT).await {
                Err(why) if watch.returns.retries(now()) => {
                    log::warn(format_args!("cannot reseed and step the clock: {why}"));
                }
                said => watch.done(&agent, signs, &said.unwrap_or_default()),
            }
        }
        agent.resume_handled.raise();
        let announced = async {
            if watch.links.readable().await.is_err() {
                pending().await
            }
        };
        agent.woken.after(woken).or(announced).await;
    }
}

struct Watch {
    links: Async<OwnedFd>,
    log: Option<OwnedFd>,
    returns: Returns,
    difference: Difference,
    is_missed: bool,
}

impl Watch {
    fn new(links: Async<OwnedFd>) -> Self {
        // If this fails, /run/mote is not writable, which the code that takes the lock reports.
        drop(count(Path::new(ROOT), 0));
        let log = signs::kernel_log();
        let (returns, is_missed) = Default::default();
        let difference = Difference::since(now().0);
        Self { links, log, returns, difference, is_missed }
    }

    fn look(&mut self, agent: &Agent, signs: &mut Signs) {
        // Only arrival matters: messages may be truncated, and a lost message follows others.
        while self.links.try_read(|links| Ok(read(links, &mut [0])?)).is_ok() {
            signs.is_announced = true;
        }
        // The log itself does not wake this task, because the kernel may log a lot.
        signs.is_fork |= self.log.as_ref().is_some_and(signs::is_forked);
        if agent.clock_set.take() {
            // A program set the clock, or the VM was suspended, after which the kernel sets it.
            self.difference.forget();
            agent.next_look.take();
        }
        if now() < agent.next_look.get() {
            return;
        }
        agent.next_look.set(now() + LOOKS);
        let before = wall();
        match signs::hardware_clock() {
            Some(hardware) => {
                signs.is_behind |= self.difference.look(hardware, [before, wall()]);
            }
            None if self.is_missed => {}
            None => {
                self.is_missed = true;
                log::info(format_args!("no RTC: pauses are not detected"));
            }
        }
    }

    /// Returns the worker's argument: that it sets the clock, or why not.
    fn clock_word(&self, agent: &Agent) -> &'static str {
        if !agent.policy.allows(Capability::Clock) {
            return "clock left alone: the policy denies it";
        }
        match self.difference.cause() {
            Some(Cause::Stopped) => STOPPED_CLOCK,
            Some(_) => CLOCK,
            None => "clock left alone: it was off before the pause; see sync-time",
        }
    }

    /// Completes a resume after the worker has reseeded and set the clock (`said` is its output):
    /// reconnects to the host, then runs the hooks.
    fn done(&mut self, agent: &Agent, mut signs: Signs, said: &[u8]) {
        // From now on, the clock counts as correct.
        self.difference.settle();
        agent.next_look.take();
        // The kernel's log entry may arrive shortly after the NIC's announcement.
        self.look(agent, &mut signs);
        self.returns.done(now());
        let generation = self.log.is_some() && signs::has_generation();
        let kind = signs.kind(Announcements { generation, announced: signs::has_nic() });
        let (said, name) = (String::from_utf8_lossy(said.trim_ascii_end()), kind.name());
        log::info(format_args!("VM resumed ({name}): {said}"));
        agent.restart_link();
        let count = count(Path::new(ROOT), kind.may_have_copies().into()).unwrap_or(0);
        agent.events.publish(RESTORED, &|| {
            Document::new(64, |json| {
                json.begin_object();
                json.pair("kind", name);
                json.count("generation", count);
                json.end_object();
            })
        });
        // Do not wait for the hooks, each of which has its own time limit.
        let stderr = io::stderr();
        if let Err(why) = run::start(agent, &[AFTER_RESUME, name], stderr.as_fd(), stderr.as_fd()) {
            log::warn(format_args!("{why}"));
        }
    }
}

/// Adds `more` to the generation and returns it. Writes in place, because programs map the file.
fn count(root: &Path, more: u64) -> io::Result<u64> {
    let path = root.join(run_dir::GENERATION);
    let file = file::open(&path, OFlags::RDWR | OFlags::CREATE)?;
    let mut bytes = [0; 8];
    let length = pread(&file, &mut bytes, 0)?;
    let count = u64::from_ne_bytes(bytes) + more;
    if length < bytes.len() || more > 0 {
        fchmod(&file, Mode::from_raw_mode(0o644))?;
        pwrite(&file, &count.to_ne_bytes(), 0)?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::{FileExt, PermissionsExt};

    use super::*;
    use crate::runtime::scratch;

    #[test]
    fn increments_the_generation_in_place() {
        let root = scratch("generation");
        let path = root.join(run_dir::GENERATION);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        assert_eq!(count(&root, 0).unwrap(), 0);
        // Simulates a program that polls the file.
        let open = File::open(&path).unwrap();
        assert_eq!(open.metadata().unwrap().permissions().mode() & 0o777, 0o644);
        for more in 1..4_u64 {
            assert_eq!(count(&root, 1).unwrap(), more);
            let mut bytes = [0; 9];
            assert_eq!(open.read_at(&mut bytes, 0).unwrap(), 8);
            assert_eq!(bytes[..8], more.to_ne_bytes());
        }
        assert_eq!(count(&root, 0).unwrap(), 3, "a later agent");
    }
}
