//! The agent's tasks, among all others of the history.

use std::marker::PhantomData;

use crate::below::here::here;
use crate::machine::executor::{Process, TaskId, Zone};

/// Runs an agent's tasks, as one process.
pub(crate) struct Executor {
    process: Process,
}

impl Executor {
    pub(crate) fn new() -> Self {
        Self { process: here().sim.process(Zone::Guest) }
    }

    pub(crate) fn process(&self) -> Process {
        self.process
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) -> Task<()> {
        Task { id: Some(here().sim.spawn(self.process, task)), output: PhantomData }
    }
}

/// A task. Dropped, it is cancelled: what it holds is released when it would next run.
pub(crate) struct Task<T> {
    id: Option<TaskId>,
    output: PhantomData<T>,
}

impl<T> Task<T> {
    pub(crate) fn detach(mut self) {
        self.id = None;
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            here().sim.cancel(id);
        }
    }
}
