//! The lock, kept by the simulated kernel.

use crate::runtime::run_dir;
use crate::sim_prelude::*;

#[derive(Debug)]
pub(crate) struct LockFile(Option<u32>);

impl LockFile {
    pub(crate) fn none(_: &Path) -> Self {
        Self(None)
    }

    pub(crate) fn is_there(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn is_named(&self) -> bool {
        true
    }

    pub(crate) fn release(&mut self) {
        let kernel = &here().kernel;
        if self.0.is_some() && kernel.lock.get() == self.0.take() {
            kernel.lock.set(None);
        }
    }

    pub(crate) fn lock_again(&self) {}
}

impl Drop for LockFile {
    fn drop(&mut self) {
        self.release();
    }
}

pub(crate) fn take(_: &Path) -> io::Result<Option<LockFile>> {
    let here = here();
    let Some(agent) = here.kernel.current(&here.sim) else {
        return Err(io::Error::other("it was killed"));
    };
    let number = agent.process.number;
    if here.kernel.lock.get().is_some_and(|other| other != number) {
        return Ok(None);
    }
    here.kernel.lock.set(Some(number));
    Ok(Some(LockFile(Some(number))))
}

pub(crate) fn pid(_: &Path) -> Option<u64> {
    let here = here();
    let other = here.kernel.lock.get().filter(|other| Some(*other) != number())?;
    Some(other.into())
}

fn number() -> Option<u32> {
    here().sim.current().map(|process| process.number)
}

pub(crate) fn tidy(root: &Path) {
    let here = here();
    if here.kernel.current(&here.sim).is_some() {
        here.files.borrow_mut().remove(&root.join(run_dir::STATUS));
    }
}
