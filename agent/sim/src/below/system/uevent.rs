//! The kernel's device events.

use crate::sim_prelude::*;
use crate::sys::SignalSource;

/// Number of waits after which an agent that was asked to end has failed.
const TIMEOUT: u32 = 100;

pub(crate) struct Events(Cell<u64>);

pub(crate) enum Woken {
    Signal,
    Event,
    Late,
}

pub(crate) fn listen() -> io::Result<Events> {
    Ok(Events(Cell::new(here().kernel.plugged.seen())))
}

pub(crate) fn pause(
    signals: &SignalSource,
    events: Option<&Events>,
    limit: Duration,
) -> io::Result<Woken> {
    let here = here();
    let agent = &signals.0;
    let is_signalled = || {
        let is_over = agent.is_dead.get() || here.sim.failure().is_some();
        is_over || !agent.signals.borrow().is_empty()
    };
    let is_event = || events.is_some_and(|events| events.0.get() != here.kernel.plugged.seen());
    let limit = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
    if agent.is_dead.get() || here.sim.failure().is_some() {
        agent.waits.set(agent.waits.get() + 1);
        assert!(agent.waits.get() < TIMEOUT, "an agent continues after SIGTERM");
    }
    here.sim.block(limit, &|| is_signalled() || is_event());
    Ok(if is_signalled() {
        Woken::Signal
    } else if is_event() {
        Woken::Event
    } else {
        Woken::Late
    })
}

pub(crate) fn drain(events: &Events) {
    events.0.set(here().kernel.plugged.seen());
}
