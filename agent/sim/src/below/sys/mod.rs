//! Clocks, limits, signals and the sandbox.

pub(crate) mod fd;
#[path = "../../../../src/sys/file.rs"]
pub(crate) mod file;

pub(crate) use crate::plan::Plan;
pub(crate) use crate::plan::{Ended, Signalled};
pub(crate) use crate::programs::{SELF, kill, kill_group, reap, spawn};
use crate::runtime::reactor::Source;
use crate::sim_prelude::*;

/// The wall clock at the guest's boot, long after 1970.
const BOOTED: Duration = Duration::from_secs(1_700_000_000);

pub(crate) fn since_boot() -> Duration {
    here().uptime().0
}

pub(crate) fn since_1970() -> Duration {
    BOOTED + since_boot()
}

/// Blocks the process, not the scenario.
pub(crate) fn sleep(length: Duration) {
    let here = here();
    let length = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
    if let Some(agent) = here.kernel.current(&here.sim) {
        here.sim.block(length, &|| agent.is_dead.get());
    }
}

pub(crate) fn process_id() -> u32 {
    here().sim.current().map_or(0, |process| process.number)
}

pub(crate) fn is_found() -> bool {
    true
}

pub(crate) fn variable(_: &std::ffi::CStr) -> Option<std::ffi::OsString> {
    None
}

pub(crate) fn exit(_code: i32) -> ! {
    unreachable!("only from the sandbox")
}

pub(crate) fn take_name() {}

pub(crate) struct SignalSource(pub(crate) Rc<AgentProcess>);

impl Source for SignalSource {
    fn seen(&self) -> u64 {
        self.0.signalled.seen()
    }

    async fn changed(&self, seen: u64) {
        self.0.signalled.after(seen).await;
    }
}

/// Returns the next signal. A dead agent ends at its next wait.
pub(crate) fn next_signal(signals: &SignalSource) -> io::Result<Signalled> {
    if signals.0.is_dead.get() || here().sim.failure().is_some() {
        return Ok(Signalled::End);
    }
    signals.0.signals.borrow_mut().pop_front().ok_or_else(|| io::ErrorKind::WouldBlock.into())
}

pub(crate) fn descriptors() -> usize {
    here().descriptors
}

pub(crate) mod sandbox {
    pub(crate) fn is_entered() -> bool {
        false
    }
}
