//! How many threads may serve at once. Whoever comes beyond that waits, as in a listener's backlog: a
//! guest in a loop must not take the daemon down, and no caller is turned away.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Connections of one listener that are served at once. Each is a thread and a TLS session of some
/// 100 KiB together; tests with hundreds of callers never wait.
pub const AT_ONCE: usize = 1024;
/// A serving thread's stack, bytes; it is what a thread reserves, and little of it is ever touched.
const STACK: usize = 512 * 1024;

/// Permits for threads.
#[derive(Debug)]
pub struct Slots {
    free: Mutex<usize>,
    freed: Condvar,
}

/// A taken permit, free again when dropped.
#[derive(Debug)]
pub struct Slot(Arc<Slots>);

impl Slots {
    /// So many.
    pub fn new(count: usize) -> Arc<Self> {
        Arc::new(Self { free: Mutex::new(count), freed: Condvar::new() })
    }

    /// One, as soon as one is free.
    pub fn take(self: &Arc<Self>) -> Slot {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.freed.wait_while(free, |free| *free == 0);
        *waited.unwrap_or_else(PoisonError::into_inner) -= 1;
        Slot(self.clone())
    }

    /// Runs this in a thread as soon as one is free. The caller waits for that.
    pub fn serve(self: &Arc<Self>, serve: impl FnOnce() + Send + 'static) {
        let slot = self.take();
        let serve = move || {
            let _slot = slot;
            serve();
        };
        // Without memory for a thread the connection is dropped with its closure, and the peer sees it.
        let _refused = std::thread::Builder::new().stack_size(STACK).spawn(serve);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

/// Lets this process have as many descriptors as it may: a connection is one, and systems begin with 1024.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    // With fewer, callers wait for descriptors as they do for threads.
    let _refused = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn whoever_comes_when_all_are_taken_waits_for_the_first_to_end() {
        let slots = Slots::new(1);
        let first = slots.take();
        let (done, second) = channel();
        let theirs = slots.clone();
        std::thread::spawn(move || done.send(theirs.take()));
        assert!(second.recv_timeout(Duration::from_millis(50)).is_err());
        drop(first);
        assert!(second.recv_timeout(Duration::from_secs(10)).is_ok());
    }
}
