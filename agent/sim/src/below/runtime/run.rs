//! Runs the agent's tasks among all others of the scenario.

use std::pin::Pin;

use smol::channel::{Receiver, bounded};
use smol::stream::{Stream, StreamExt};

use crate::machine::TaskId;
use crate::sim_prelude::*;

/// Runs an agent's tasks in the process that created it.
pub(crate) struct Executor {
    process: Process,
}

impl Executor {
    pub(crate) fn new() -> Self {
        let sim = &here().sim;
        Self { process: sim.current().unwrap_or_else(|| sim.process(Zone::Guest)) }
    }

    pub(crate) fn spawn<T: 'static>(&self, task: impl Future<Output = T> + 'static) -> Task<T> {
        let (end, receiver) = bounded(1);
        let id = here().sim.spawn(self.process, async move {
            let output = task.await;
            let _dropped = end.try_send(output);
        });
        Task { id: Some(id), end: Box::pin(receiver) }
    }
}

/// A task. Dropping it cancels it: what it holds is released when it would next run.
pub(crate) struct Task<T> {
    id: Option<TaskId>,
    end: Pin<Box<Receiver<T>>>,
}

impl<T> Task<T> {
    pub(crate) fn detach(mut self) {
        self.id = None;
    }

    /// Cancels the task, and waits until what it holds is released.
    pub(crate) async fn cancel(mut self) {
        if let Some(id) = self.id.take() {
            here().sim.cancel(id);
        }
        while self.end.next().await.is_some() {}
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match self.end.as_mut().poll_next(context) {
            Poll::Ready(Some(output)) => Poll::Ready(output),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            here().sim.cancel(id);
        }
    }
}
