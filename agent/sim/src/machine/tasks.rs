//! Tasks, and how they are queued when ready.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Wake;

/// Whose clock and suspends apply to a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Zone {
    #[default]
    Host,
    Guest,
}

/// Tasks that are killed together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) zone: Zone,
    pub(crate) number: u32,
}

/// A task's identity, to cancel it.
pub(crate) type TaskId = u64;

pub(super) type Task = Pin<Box<dyn Future<Output = ()>>>;

pub(super) struct Slot {
    pub(super) process: Process,
    pub(super) is_cancelled: bool,
    pub(super) waker: Arc<Knock>,
    /// Absent while it runs.
    pub(super) task: Option<Task>,
}

/// Queues its task when woken.
pub(super) struct Knock {
    pub(super) id: TaskId,
    pub(super) is_queued: AtomicBool,
    /// Whether it was woken by other tasks while it blocked.
    pub(super) is_missed: AtomicBool,
    pub(super) queue: Arc<Mutex<VecDeque<TaskId>>>,
}

impl Wake for Knock {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::Relaxed) {
            self.queue.lock().expect("one thread").push_back(self.id);
        }
    }
}
