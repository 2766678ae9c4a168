//! Pipes and socket pairs inside the guest, which never fail.

use std::future::poll_fn;

use super::{End, PIPE};
use crate::sim_prelude::*;

impl Net {
    pub(crate) fn pair(self: &Rc<Self>) -> (Stream, Stream) {
        let (one, other) = self.sides(self.sim.dice.between(1, 50), true, true);
        one.limit(PIPE);
        other.limit(PIPE);
        (one, other)
    }
}

fn at_once<T>(poll: Poll<T>) -> Option<T> {
    if let Poll::Ready(done) = poll { Some(done) } else { None }
}

impl Stream {
    /// Reads pending bytes; returns `None` if there are none yet.
    pub(crate) fn try_read(&self, out: &mut [u8]) -> Option<Result<usize, Broken>> {
        if self.is_empty(None) {
            return None;
        }
        at_once(self.poll_read(&Context::from_waker(Waker::noop()), out))
    }

    /// Writes what fits; returns `None` if nothing does.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> Option<Result<usize, Broken>> {
        at_once(self.poll_write(&Context::from_waker(Waker::noop()), bytes))
    }

    /// Waits until a read finds bytes or the end.
    pub(crate) async fn readable(&self) {
        poll_fn(|context| match self.is_empty(Some(context)) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        })
        .await;
    }

    /// Waits until there is room to write, or no reader is left.
    pub(crate) async fn writable(&self) {
        poll_fn(|context| {
            let mut way = self.sending.borrow_mut();
            if way.end != End::Open || way.unread < way.window {
                return Poll::Ready(());
            }
            way.writer = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
