//! A bound on what is read from the port: a port that is a device without an end, or a host gone wild, must not
//! keep the CPU busy.

use core::time::Duration;

use crate::time::Uptime;

/// Most bytes read in one [`PERIOD`], after which the port is not read until the next one. Real lines are of 89
/// bytes at most, and reading as many as this takes a hundredth of the time.
pub(super) const FLOOD_BYTES: usize = 256 * 1024;
/// Period in which the bytes are counted, and so the longest pause: a CONNECT line behind a burst is late by no
/// more than that.
const PERIOD: Duration = Duration::from_secs(1);

/// The bytes of the current period.
#[derive(Debug, Default)]
pub(super) struct Flood {
    end: Uptime,
    bytes: usize,
}

impl Flood {
    /// Counts bytes that were read.
    pub(super) fn read(&mut self, now: Uptime, bytes: usize) {
        if now >= self.end {
            *self = Self { end: now + PERIOD, bytes: 0 };
        }
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Time until which the port is not to be read; `None` if it may be read now.
    pub(super) fn pause(&self, now: Uptime) -> Option<Uptime> {
        (self.bytes >= FLOOD_BYTES && now < self.end).then_some(self.end)
    }
}
