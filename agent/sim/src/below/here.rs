//! The scenario of this thread, with its small files. It is global, because the agent's modules
//! have no handle for the system.

use std::io::ErrorKind;

use mote_core::time::Uptime;

use crate::host::port::Qemu;
use crate::sim_prelude::*;

/// Uptime at the start of a scenario, so that the clock can be set back early.
const BEGIN: Duration = Duration::from_secs(1000);

pub(crate) struct Here {
    pub(crate) sim: Rc<Sim>,
    pub(crate) net: Rc<Net>,
    pub(crate) qemu: Rc<Qemu>,
    pub(crate) oracle: Rc<Oracle>,
    pub(crate) kernel: Rc<Kernel>,
    /// Small files, which survive an agent.
    pub(crate) files: RefCell<BTreeMap<PathBuf, Vec<u8>>>,
    /// `agent.conf` of the host's share.
    pub(crate) conf: RefCell<Option<Vec<u8>>>,
    /// Whether no descriptor is left for calls.
    pub(crate) lacking: Cell<bool>,
    /// Maximum number of descriptors of a process.
    pub(crate) descriptors: usize,
    /// Number of open connections of guests, and its upper bound.
    pub(crate) guests: Cell<usize>,
    pub(crate) most_guests: usize,
}

thread_local! {
    static HERE: RefCell<Option<Rc<Here>>> = const { RefCell::new(None) };
}

pub(crate) fn enter(here: Rc<Here>) {
    HERE.replace(Some(here));
}

pub(crate) fn here() -> Rc<Here> {
    HERE.with_borrow(|here| here.clone().expect("a scenario"))
}

impl Here {
    /// Records that the running agent serves a peer: no older one may do so afterwards.
    pub(crate) fn serves(&self, what: &str) {
        if let Some(agent) = self.kernel.current(&self.sim) {
            self.oracle.serves(agent.rank.get(), what);
        }
    }

    /// Returns the guest's time as the agent sees it.
    pub(crate) fn uptime(&self) -> Uptime {
        Uptime(BEGIN + Duration::from_micros(self.sim.now(Zone::Guest)))
    }
}

/// Converts an uptime to the guest's clock.
pub(crate) fn micros(time: Uptime) -> Micros {
    let since = time.0.saturating_sub(BEGIN).as_nanos().div_ceil(1000);
    Micros::try_from(since).unwrap_or(Micros::MAX)
}

pub(crate) fn read_bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let bytes = here().files.borrow().get(path).cloned().ok_or(ErrorKind::NotFound)?;
    if bytes.len() as u64 > most { Err(ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

pub(crate) fn read_if_there(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    match read_bounded(path, most) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

pub(crate) fn text_of(directory: &Path, path: &str) -> String {
    let text = read_bounded(&directory.join(path), u64::MAX).unwrap_or_default();
    String::from_utf8(text).unwrap_or_default()
}

pub(crate) fn write_small(path: &Path, bytes: &[u8]) -> io::Result<()> {
    here().files.borrow_mut().insert(path.to_owned(), bytes.to_vec());
    Ok(())
}
