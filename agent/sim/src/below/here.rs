//! The history that this thread tells: the agent's modules have no handle for the system, here as there.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use mote_core::time::Uptime;

use crate::host::port::Qemu;
use crate::machine::executor::{Micros, Sim, Zone};
use crate::machine::kernel::Kernel;
use crate::machine::net::Net;
use crate::oracle::Oracle;

/// Uptime at which histories begin, so that the clock can go back when a history has hardly begun.
const BEGIN: Duration = Duration::from_secs(1000);

/// What surrounds the agents of a history.
pub(crate) struct Here {
    pub(crate) sim: Rc<Sim>,
    pub(crate) net: Rc<Net>,
    pub(crate) qemu: Rc<Qemu>,
    pub(crate) oracle: Rc<Oracle>,
    pub(crate) kernel: Rc<Kernel>,
    /// Small files, which outlive an agent.
    pub(crate) files: RefCell<BTreeMap<PathBuf, Vec<u8>>>,
    /// `agent.conf` of the host's share.
    pub(crate) conf: RefCell<Option<Vec<u8>>>,
    /// Whether there is none left to dial with.
    pub(crate) lacking: Cell<bool>,
    /// How many descriptors a process may have.
    pub(crate) descriptors: usize,
    /// Open connections of guests, and the most that there may be.
    pub(crate) guests: Cell<usize>,
    pub(crate) most_guests: usize,
}

thread_local! {
    static HERE: RefCell<Option<Rc<Here>>> = const { RefCell::new(None) };
}

/// Begins a history.
pub(crate) fn enter(here: Rc<Here>) {
    HERE.replace(Some(here));
}

/// The one that is told.
pub(crate) fn here() -> Rc<Here> {
    HERE.with_borrow(|here| here.clone().expect("a history"))
}

impl Here {
    /// The agent that runs serves somebody: no older one may do so afterwards.
    pub(crate) fn serves(&self, what: &str) {
        if let Some(agent) = self.kernel.current(&self.sim) {
            self.oracle.serves(agent.rank.get(), what);
        }
    }

    /// The guest's time as the agent has it.
    pub(crate) fn uptime(&self) -> Uptime {
        Uptime(BEGIN + Duration::from_micros(self.sim.now(Zone::Guest)))
    }
}

/// What the guest's clock shows at that uptime.
pub(crate) fn micros(time: Uptime) -> Micros {
    let since = time.0.saturating_sub(BEGIN).as_nanos().div_ceil(1000);
    Micros::try_from(since).unwrap_or(Micros::MAX)
}
