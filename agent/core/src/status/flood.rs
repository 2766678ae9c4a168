//! Limits the bytes read from the port: an endless device or a misbehaving host must not use all
//! CPU time.

use core::time::Duration;

use crate::time::Uptime;

/// Limit of bytes read in one [`PERIOD`], after which mote pauses until the next one. Real lines
/// have at most 89 bytes, and reading this many takes a hundredth of the time.
pub(super) const FLOOD_BYTES: usize = 256 * 1024;
/// Period in which bytes are counted, and longest pause: a CONNECT line after a burst is delayed by
/// no more than this.
const PERIOD: Duration = Duration::from_secs(1);

/// The bytes of the current period.
#[derive(Debug, Default)]
pub(super) struct Flood {
    end: Uptime,
    bytes: usize,
}

impl Flood {
    pub(super) fn read(&mut self, now: Uptime, bytes: usize) {
        if now >= self.end {
            *self = Self { end: now + PERIOD, bytes: 0 };
        }
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Returns the time until which the shell must not read the port; `None` if it may read now.
    pub(super) fn pause(&self, now: Uptime) -> Option<Uptime> {
        (self.bytes >= FLOOD_BYTES && now < self.end).then_some(self.end)
    }
}
