//! `/proc/stat`, `/proc/diskstats` and `/proc/net/dev` (proc(5), the kernel's iostats.rst).

use super::{number, words};
use crate::netlink::{Counters, Traffic};

/// A processor's time in ticks (`USER_HZ`): 100 per second on every supported architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu<'l> {
    /// `cpu0` and so on; `cpu` is the sum of all.
    pub name: &'l [u8],
    /// user, nice, system, idle, iowait, irq, softirq, steal; 0 where an old kernel has none.
    pub ticks: [u64; 8],
}

impl<'l> Cpu<'l> {
    /// Parses a line of `/proc/stat`; `None` if it is not a processor's.
    pub fn parse(line: &'l [u8]) -> Option<Self> {
        let mut words = words(line);
        let name = words.next()?;
        if !name.strip_prefix(b"cpu")?.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let mut ticks = [0; 8];
        for (tick, word) in ticks.iter_mut().zip(words) {
            *tick = number(word)?;
        }
        Some(Self { name, ticks })
    }

    /// Returns the busy time, in ns. `user` includes the time of nested guests.
    pub fn busy(&self) -> u64 {
        let [user, nice, system, _idle, _iowait, irq, softirq, _steal] = self.ticks;
        let ticks = [user, nice, system, irq, softirq].into_iter().fold(0, u64::saturating_add);
        ticks.saturating_mul(10_000_000)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface<'l> {
    pub name: &'l [u8],
    pub counters: Counters,
}

impl<'l> Interface<'l> {
    /// Parses a line of `/proc/net/dev`; `None` for its two headings.
    pub fn parse(line: &'l [u8]) -> Option<Self> {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, rest) = (line.get(..colon)?, line.get(colon + 1..)?);
        let mut fields = [0; 12];
        let mut words = words(rest);
        for field in &mut fields {
            *field = number(words.next()?)?;
        }
        let traffic = |[bytes, packets, errors, dropped]: [u64; 4]| Traffic {
            packets,
            bytes,
            errors,
            dropped,
        };
        let [a, b, c, d, _fifo, _frame, _compressed, _multicast, e, f, g, h] = fields;
        let counters = Counters { received: traffic([a, b, c, d]), sent: traffic([e, f, g, h]) };
        Some(Self { name: name.trim_ascii(), counters })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk<'l> {
    pub name: &'l [u8],
    pub reads: u64,
    pub read: u64,
    pub writes: u64,
    pub written: u64,
}

impl<'l> Disk<'l> {
    /// Parses a line of `/proc/diskstats`, where a sector always has 512 bytes.
    pub fn parse(line: &'l [u8]) -> Option<Self> {
        let mut words = words(line).skip(2);
        let name = words.next()?;
        let mut fields = [0; 7];
        for field in &mut fields {
            *field = number(words.next()?)?;
        }
        let [reads, _merged, sectors_read, _millis, writes, _, sectors_written] = fields;
        let bytes = |sectors: u64| sectors.saturating_mul(512);
        Some(Self {
            name,
            reads,
            read: bytes(sectors_read),
            writes,
            written: bytes(sectors_written),
        })
    }
}
