//! The VM runs again, after a pause, elsewhere or as a copy: what the kernel and the host take for granted is made anew.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use mote_core::hostapi::event::RESTORED;
use mote_core::hostapi::policy::Capability;
use mote_core::json::Document;
use mote_core::resume::clock::{Cause, Difference};
use mote_core::resume::{Announcements, Returns, Signs};
use rustix::io::{pread, pwrite, read};
use smol::future::FutureExt;
use smol::future::pending;

use crate::agent::Agent;
use crate::runtime::clock::now;
use crate::runtime::reactor::Async;
use crate::runtime::{log, run_dir};
use crate::sys::restored::wall;
use crate::sys::sandbox;
use crate::system::signs;
use crate::workers::after_resume::{CLOCK, STOPPED_CLOCK};
use crate::workers::run;

/// Shortest interval between two reads of the hardware's clock, since the agent may wake much more often; [`Agent::settled`] does
/// not wait for it.
const LOOKS: Duration = Duration::from_secs(3);
/// Upper bound for reseeding and setting the clock, and so for the wait of [`Agent::settled`].
const LIMIT: Duration = Duration::from_secs(10);
/// This machine's own.
const ROOT: &str = "/";
/// The worker.
const AFTER_RESUME: &str = "after-resume";
/// Longest output of a worker, bytes.
const OUTPUT: usize = 4096;

/// Waits for signs that the VM runs again, for ever. Does nothing where it may not, or in a root that is another: what is set is
/// the machine's.
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

/// What the signs are seen by.
struct Watch {
    links: Async<OwnedFd>,
    /// The kernel's.
    log: Option<OwnedFd>,
    returns: Returns,
    difference: Difference,
    is_missed: bool,
}

impl Watch {
    fn new(links: Async<OwnedFd>) -> Self {
        // Where it cannot be written, the lock could not either, of which the log tells.
        drop(count(Path::new(ROOT), 0));
        let log = signs::kernel_log();
        let (returns, is_missed) = Default::default();
        let difference = Difference::since(now().0);
        Self { links, log, returns, difference, is_missed }
    }

    /// Adds what there is to see.
    #[inline(never)] // its size
    fn look(&mut self, agent: &Agent, signs: &mut Signs) {
        // What does not fit is cut off, and where some were lost there were others.
        while self.links.try_read(|links| Ok(read(links, &mut [0])?)).is_ok() {
            signs.is_announced = true;
        }
        // It is not waited for: the kernel may say much.
        signs.is_fork |= self.log.as_ref().is_some_and(signs::is_forked);
        if agent.clock_set.take() {
            // Somebody did, or it was a suspend, after which the kernel does it.
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

    /// Tells the worker to set the clock, or why not.
    fn clock_word(&self, agent: &Agent) -> &'static str {
        if !agent.policy.allows(Capability::Clock) {
            return "clock left alone: the policy denies it";
        }
        match self.difference.cause() {
            Some(Cause::Stopped) => STOPPED_CLOCK,
            Some(_) => CLOCK,
            None => "clock left alone: it was off before; see sync-time",
        }
    }

    /// Random numbers and clock are new, and this was said of it: now the host, and then the guest's programs.
    #[inline(never)] // its size
    fn done(&mut self, agent: &Agent, mut signs: Signs, said: &[u8]) {
        // What it is now counts as right.
        self.difference.settle();
        agent.next_look.take();
        // The kernel's log may come a little after a NIC.
        self.look(agent, &mut signs);
        self.returns.done(now());
        let generation = self.log.is_some() && signs::has_generation();
        let kind = signs.kind(Announcements { generation, announced: signs::has_nic() });
        let (said, name) = (String::from_utf8_lossy(said.trim_ascii_end()), kind.name());
        log::info(format_args!("VM resumed ({name}): {said}"));
        agent.restart_link();
        let count = count(Path::new(ROOT), kind.is_another_life().into()).unwrap_or(0);
        agent.events.publish(RESTORED, &|| {
            Document::new(64, |json| {
                json.begin_object();
                json.pair("kind", name);
                json.count("generation", count);
                json.end_object();
            })
        });
        // Nobody waits for them: each has its time.
        let stderr = io::stderr();
        if let Err(why) = run::start(agent, &[AFTER_RESUME, name], stderr.as_fd(), stderr.as_fd()) {
            log::warn(format_args!("{why}"));
        }
    }
}

/// Counts the generation up by so many; gives it. It is written in place, since programs have it mapped.
///
/// # Errors
/// Any error of the file.
fn count(root: &Path, more: u64) -> io::Result<u64> {
    let path = root.join(run_dir::GENERATION);
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    let mut bytes = [0; 8];
    let length = pread(&file, &mut bytes, 0)?;
    let count = u64::from_ne_bytes(bytes) + more;
    if length < bytes.len() || more > 0 {
        file.set_permissions(Permissions::from_mode(0o644))?;
        pwrite(&file, &count.to_ne_bytes(), 0)?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::runtime::scratch::scratch;

    #[test]
    fn the_generation_counts_up_in_place() {
        let root = scratch("generation");
        let path = root.join(run_dir::GENERATION);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        assert_eq!(count(&root, 0).unwrap(), 0);
        // As a program has it that looks now and then.
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
