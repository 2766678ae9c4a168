//! Timers on the guest's virtual clock, and other things to wait for.

use mote_core::time::Uptime;

use crate::below::here::micros;
pub(crate) use crate::machine::Timer;
use crate::sim_prelude::*;

impl Timer {
    pub(crate) fn at(time: Duration) -> Self {
        Self::new(Zone::Guest, micros(Uptime(time)))
    }
}

pub(crate) trait Source {
    fn seen(&self) -> u64;
    async fn changed(&self, seen: u64);
    async fn has_room(&self) {}
}

/// A source whose operations are retried when it has changed.
pub(crate) struct Async<T>(pub(crate) T);

impl<T> std::fmt::Debug for Async<T> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Async")
    }
}

impl<T: Source> Async<T> {
    pub(crate) fn new(source: T) -> io::Result<Self> {
        Ok(Self(source))
    }

    pub(crate) fn new_nonblocking(source: T) -> io::Result<Self> {
        Self::new(source)
    }

    pub(crate) fn get_ref(&self) -> &T {
        &self.0
    }

    pub(crate) async fn read_with<R>(
        &self,
        mut op: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            let seen = self.0.seen();
            match op(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.0.changed(seen).await;
                }
                other => return other,
            }
        }
    }

    pub(crate) async fn write_with<R>(
        &self,
        mut op: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            match op(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.0.has_room().await,
                other => return other,
            }
        }
    }

    pub(crate) fn try_read<R>(&self, op: impl FnOnce(&T) -> io::Result<R>) -> io::Result<R> {
        op(&self.0)
    }

    /// Waits until a read may find something, for callers that do not count changes.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        self.0.changed(self.0.seen()).await;
        Ok(())
    }
}

/// Does nothing, because the simulation's timers count suspends.
pub(crate) async fn jumps(_: impl Fn()) {}
