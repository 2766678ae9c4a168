//! A command's output: whether it arrives, whether it is read here, what was lost, and its last
//! part for reports.

use std::collections::VecDeque;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::terminal;
use crate::agent::websocket::{Pulse, hang_up};
use crate::net::stream::patient;

/// Waits until all output was written, and reports streams that were cut off.
pub struct AllOutput {
    /// Why streams did not end normally.
    pub(super) cuts: Receiver<String>,
    pub(super) flow: Arc<Flow>,
    pub(super) lines: Vec<UnixStream>,
}

#[derive(Default)]
pub(super) struct Flow {
    pub(super) pieces: AtomicU64,
    /// Number of streams whose last part is not written yet.
    pub(super) writing: AtomicUsize,
}

impl AllOutput {
    pub fn wait(self, limit: Duration) {
        let end = Instant::now() + limit;
        let left = || end.saturating_duration_since(Instant::now());
        while self.cuts.recv_timeout(left()).is_ok() {}
    }

    /// Waits while output arrives or is waiting to be read here. Gives up after `still` without
    /// either. Returns why output was lost, and whether another process still has a stream open.
    pub fn wait_while_it_flows(self, still: Duration) -> (Vec<String>, bool) {
        let mut cuts = Vec::new();
        loop {
            let pieces = self.flow.pieces.load(Ordering::Acquire);
            match self.cuts.recv_timeout(still) {
                Ok(cut) => cuts.push(cut),
                Err(RecvTimeoutError::Disconnected) => return (cuts, false),
                Err(RecvTimeoutError::Timeout) => {
                    let moved = self.flow.pieces.load(Ordering::Acquire) != pieces;
                    if !moved && self.flow.writing.load(Ordering::Acquire) == 0 {
                        // Hangs up on streams that have not ended.
                        self.lines.iter().for_each(hang_up);
                        return (cuts, true);
                    }
                }
            }
        }
    }
}

impl Flow {
    /// Ends this process by a signal if nothing arrives from the guest, which then cannot act on
    /// the signal.
    pub(super) fn end_if_silent(&self, guest: &Pulse, signal: i32) {
        const ANSWER: Duration = Duration::from_secs(2);
        let arrived = || (guest.arrived(), self.pieces.load(Ordering::Acquire));
        loop {
            let before = arrived();
            guest.ping();
            sleep(patient(ANSWER));
            match arrived() {
                now if now == before => {
                    terminal::restore();
                    std::process::exit(128 + signal);
                }
                (answers, _) if answers != before.0 => return,
                // The output was already in flight.
                _ => {}
            }
        }
    }

    /// Ends this process with a signal if no process reads its output: the command may end, but the
    /// wait for its output would not.
    pub(super) fn end_if_unread(&self, signal: i32) {
        const UNREAD: Duration = Duration::from_millis(500);
        loop {
            let pieces = self.pieces.load(Ordering::Acquire);
            sleep(UNREAD);
            let is_writing = self.writing.load(Ordering::Acquire) > 0;
            if is_writing && self.pieces.load(Ordering::Acquire) == pieces {
                // Do not wait for the other threads, which are blocked by the reader of the output.
                std::process::exit(128 + signal);
            }
        }
    }
}

/// Bytes kept of each stream.
pub const TAIL: usize = 32 * 1024;

/// The end of a stream, if it is kept.
#[derive(Clone, Debug, Default)]
pub struct Tail(Option<Arc<Mutex<VecDeque<u8>>>>);

impl Tail {
    pub fn kept() -> Self {
        Self(Some(Arc::default()))
    }

    pub(super) fn take(&self, piece: &[u8]) {
        let Some(kept) = &self.0 else { return };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(piece.get(piece.len().saturating_sub(TAIL)..).unwrap_or_default());
        let over = kept.len().saturating_sub(TAIL);
        kept.drain(..over);
    }

    pub fn bytes(&self) -> Vec<u8> {
        let kept = self.0.as_ref().map(|kept| kept.lock().unwrap_or_else(PoisonError::into_inner));
        kept.map_or_else(Vec::new, |kept| kept.iter().copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_only_the_end() {
        let (tail, none) = (Tail::kept(), Tail::default());
        tail.take(b"first");
        tail.take(&vec![b'x'; 3 * TAIL]);
        tail.take(b"last");
        none.take(b"x");
        let bytes = tail.bytes();
        assert_eq!((bytes.len(), bytes.ends_with(b"xlast"), none.bytes()), (TAIL, true, vec![]));
    }
}
