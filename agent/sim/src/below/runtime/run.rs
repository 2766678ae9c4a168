//! Runs the agent's tasks among all others of the scenario.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::below::here::here;
use crate::machine::{Process, TaskId, Zone};

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
        let end = Rc::<RefCell<End<T>>>::default();
        let ending = Ending(end.clone());
        let id = here().sim.spawn(self.process, async move {
            let output = task.await;
            ending.0.borrow_mut().output = Some(output);
        });
        Task { id: Some(id), end }
    }
}

/// Result of a task.
struct End<T> {
    output: Option<T>,
    is_over: bool,
    waiting: Option<Waker>,
}

impl<T> Default for End<T> {
    fn default() -> Self {
        Self { output: None, is_over: false, waiting: None }
    }
}

/// Dropped with its task.
struct Ending<T>(Rc<RefCell<End<T>>>);

impl<T> Drop for Ending<T> {
    fn drop(&mut self) {
        let mut end = self.0.borrow_mut();
        end.is_over = true;
        end.waiting.take().into_iter().for_each(Waker::wake);
    }
}

/// A task. Dropping it cancels it: what it holds is released when it would next run.
pub(crate) struct Task<T> {
    id: Option<TaskId>,
    end: Rc<RefCell<End<T>>>,
}

impl<T> Task<T> {
    pub(crate) fn detach(mut self) {
        self.id = None;
    }

    /// Cancels it, and waits until what it holds is released.
    pub(crate) async fn cancel(mut self) {
        if let Some(id) = self.id.take() {
            here().sim.cancel(id);
        }
        std::future::poll_fn(|context| {
            let mut end = self.end.borrow_mut();
            if end.is_over {
                return Poll::Ready(());
            }
            end.waiting = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut end = self.end.borrow_mut();
        if let Some(output) = end.output.take() {
            return Poll::Ready(output);
        }
        end.waiting = Some(context.waker().clone());
        Poll::Pending
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            here().sim.cancel(id);
        }
    }
}
