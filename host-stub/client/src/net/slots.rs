//! Limits the number of serving threads, so that a guest in a loop cannot exhaust the daemon.
//! Further callers wait, as in a listener's backlog; the host refuses none.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Connections of one listener that are served at the same time. Each uses about 100 KiB for a
/// thread and a TLS session. Tests with hundreds of callers never wait.
pub const AT_ONCE: usize = 1024;
/// Stack size of a serving thread, in bytes. It is only reserved; little of it is used.
const STACK: usize = 512 * 1024;

/// Permits in use.
#[derive(Debug)]
pub struct Slots(SyncSender<()>, Mutex<Receiver<()>>);

/// Returns the connections of a listener. Waits if no descriptors are left.
pub fn accepted<T>(incoming: impl Iterator<Item = std::io::Result<T>>) -> impl Iterator<Item = T> {
    const PAUSE: Duration = Duration::from_millis(10);
    incoming.filter_map(|socket| socket.map_err(|_| std::thread::sleep(PAUSE)).ok())
}

/// A permit, returned when dropped.
#[derive(Debug)]
pub struct Slot(Arc<Slots>);

impl Slots {
    pub fn new(count: usize) -> Arc<Self> {
        let (taken, ended) = sync_channel(count);
        Arc::new(Self(taken, Mutex::new(ended)))
    }

    /// Takes a permit; waits while all are in use.
    pub fn take(self: &Arc<Self>) -> Slot {
        let _never = self.0.send(());
        Slot(self.clone())
    }

    pub fn serve(self: &Arc<Self>, serve: impl FnOnce() + Send + 'static) {
        let slot = self.take();
        let serve = move || {
            let _slot = slot;
            serve();
        };
        // Without memory for a thread, the closure and its connection are dropped, which the peer
        // notices.
        let _refused = std::thread::Builder::new().stack_size(STACK).spawn(serve);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let _its_own = self.0.1.lock().unwrap_or_else(PoisonError::into_inner).try_recv();
    }
}

/// Raises the limit of open files to its maximum: each connection is one, and the usual limit is
/// 1024.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    // If this fails, callers wait for descriptors as they do for threads.
    let _refused = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_caller_without_a_permit_waits_for_the_first_to_end() {
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
