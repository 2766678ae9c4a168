//! QEMU's side of the status port: the ring buffer that servers read, the line that counts, and the
//! events that make them read (P§2.2, P§2.3). All tests that play a host share this model: those of
//! the status machine, of the agent, and of mote-host, whose own code is not used.

#![allow(missing_docs, reason = "code of tests: the name of an item says what it is")]

use std::collections::VecDeque;
use std::mem::take;

/// Interval at which a server reads the ring without an event, seconds.
pub const LOOK: u64 = 10;
/// Minimum interval of a port's events, microseconds.
pub const THROTTLE: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reader {
    /// LXD and older Incus: 16 bytes, of which the last whole line counts.
    #[default]
    Lxd,
    /// Newer Incus: 16 KiB, of which the last line but one counts.
    Incus,
}

impl Reader {
    fn size(self) -> usize {
        match self {
            Self::Lxd => 16,
            Self::Incus => 16 * 1024,
        }
    }

    pub fn line(self, bytes: &[u8]) -> Option<&[u8]> {
        let mut lines: Vec<_> = bytes.split(|byte| *byte == b'\n').collect();
        let _unfinished = lines.pop();
        if self == Self::Incus && lines.len() > 1 {
            lines.pop();
        }
        lines.pop()
    }
}

/// The newest unread bytes. They outlive the agent and the server.
#[derive(Debug, Default)]
pub struct Ring {
    reader: Reader,
    bytes: VecDeque<u8>,
}

impl Ring {
    pub fn new(reader: Reader) -> Self {
        Self { reader, bytes: VecDeque::new() }
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        let over = self.bytes.len().saturating_sub(self.reader.size());
        drop(self.bytes.drain(..over));
    }

    /// Returns and removes all data, as `ringbuf-read` does.
    pub fn take(&mut self) -> Vec<u8> {
        take(&mut self.bytes).into()
    }

    pub fn read(&mut self) -> Option<Vec<u8>> {
        let bytes = self.take();
        self.reader.line(&bytes).map(<[u8]>::to_vec)
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// The throttle of one port's events: the first event is sent immediately. Later events within a
/// second are merged and sent at the end of that second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttle {
    last: Option<u64>,
    is_held: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    Now,
    /// Delayed until this time, when [`Throttle::over`] must be called.
    At(u64),
    /// Merged with the delayed event.
    Never,
}

impl Throttle {
    /// Records that the port is opened or closed. `now` is in microseconds.
    pub fn event(&mut self, now: u64) -> Sent {
        match self.last.map(|last| last + THROTTLE).filter(|end| *end > now) {
            _ if self.is_held => Sent::Never,
            Some(end) => {
                self.is_held = true;
                Sent::At(end)
            }
            None => {
                self.last = Some(now);
                Sent::Now
            }
        }
    }

    pub fn over(&mut self, now: u64) {
        *self = Self { last: Some(now), is_held: false };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_keeps_the_newest_bytes() {
        let mut ring = Ring::default();
        ring.write(b"STARTED\nCONNECTED\n");
        assert_eq!(ring.bytes, b"ARTED\nCONNECTED\n");
        assert_eq!(ring.read().as_deref(), Some(&b"CONNECTED"[..]));
        assert_eq!(ring.read(), None);
        ring.write(b"STARTED\nhalf");
        assert_eq!(ring.read().as_deref(), Some(&b"STARTED"[..]));
        ring.write(b"half");
        assert_eq!((ring.len(), ring.read(), ring.is_empty()), (4, None, true));
    }

    #[test]
    fn newer_incus_reads_the_last_line_but_one() {
        for (text, line) in [("A\n", "A"), ("A\nB\n", "A"), ("A\nB\nC\nhalf", "B")] {
            let mut ring = Ring::new(Reader::Incus);
            ring.write(text.as_bytes());
            assert_eq!(ring.read().as_deref(), Some(line.as_bytes()));
        }
    }

    #[test]
    fn throttles_events_to_one_per_second() {
        let mut port = Throttle::default();
        let end = 5 + THROTTLE;
        assert_eq!([port.event(5), port.event(6)], [Sent::Now, Sent::At(end)]);
        assert_eq!(port.event(7), Sent::Never);
        port.over(end);
        assert_eq!(port.event(end + 1), Sent::At(end + THROTTLE));
        port.over(end + THROTTLE);
        assert_eq!(port.event(end + 2 * THROTTLE), Sent::Now);
    }
}
