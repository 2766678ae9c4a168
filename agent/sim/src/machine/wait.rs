//! Waits for a time, the first of two futures, or a change.

use std::pin::Pin;

/// Returns the output of the first future to complete; drops the other.
pub(crate) use smol::future::or as either;

pub(crate) use crate::runtime::Signal;
use crate::sim_prelude::*;

/// A future that is ready when the zone's clock shows `at`.
pub(crate) struct Timer {
    zone: Zone,
    at: Micros,
    set: Option<((Micros, u64), Waker)>,
}

impl Timer {
    pub(crate) fn new(zone: Zone, at: Micros) -> Self {
        Self { zone, at, set: None }
    }

    fn unset(&mut self) {
        if let Some((key, _)) = self.set.take() {
            here().sim.forget(self.zone, key);
        }
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let sim = &here().sim;
        if sim.now(self.zone) >= self.at {
            return Poll::Ready(());
        }
        let waker = context.waker();
        if !self.set.as_ref().is_some_and(|(_, old)| old.will_wake(waker)) {
            self.unset();
            let key = sim.wake_at(self.zone, self.at, waker);
            self.set = Some((key, waker.clone()));
        }
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.unset();
    }
}

pub(crate) async fn sleep(sim: &Sim, zone: Zone, length: Micros) {
    Timer::new(zone, sim.now(zone).saturating_add(length)).await;
}

/// Returns the output, or `None` if it takes longer than `length`.
pub(crate) async fn within<T>(
    sim: &Sim,
    zone: Zone,
    length: Micros,
    work: impl Future<Output = T>,
) -> Option<T> {
    let late = async {
        sleep(sim, zone, length).await;
        None
    };
    either(async { Some(work.await) }, late).await
}
