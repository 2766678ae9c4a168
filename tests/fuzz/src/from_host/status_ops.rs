//! The status state machine under arbitrary operations: hostile bytes, PUTs, call results in any
//! order, failed writes, time. Invariants: deadlines are in the future, only the current
//! verification's result counts, numbers are unique, lines and calls per second are limited, silent
//! lines appear only in CONNECTED, an announcement always follows, and STOPPED is final.

use mote_core::status::{Action, Host, Intervals, State, Status};

use crate::prelude::*;

/// A host on one of 256 ports, with one of 16 certificates.
fn host(value: u8) -> Host {
    let address = HostAddress { cid: 2, port: u32::from(value) + 1 };
    Host { address, fingerprint: [value % 16; 32] }
}

struct Run {
    status: Status,
    now: Uptime,
    /// The numbers of verifications, the latest last.
    attempts: Vec<u32>,
    writes: Vec<Uptime>,
    calls: Vec<Uptime>,
    /// Number of notifications, each of which may get an answer.
    told: usize,
    last_line: &'static [u8],
}

impl Run {
    fn settle(&mut self) {
        let mut left = 16;
        while let Some(action) = self.status.poll(self.now) {
            left -= 1;
            assert!(left > 0, "a burst");
            match action {
                Action::Write { line, visible, .. } => {
                    assert!(line.len() <= 16 && line.ends_with(b"\n"));
                    assert!(visible || self.status.state() == State::Connected);
                    self.last_line = line;
                    self.writes.push(self.now);
                }
                Action::Verify { host: Host { address, .. }, attempt } => {
                    assert!(!self.attempts.contains(&attempt));
                    assert!(HostAddress::new(address.cid, address.port).is_some());
                    self.attempts.push(attempt);
                    self.calls.push(self.now);
                }
                Action::Refused(_) | Action::HostAddress(_) | Action::Changed(_) => {}
            }
        }
        assert!(self.status.deadline().is_none_or(|deadline| deadline > self.now));
    }

    /// Advances the time and meets each deadline, or wakes up late once, as after a suspend.
    fn wait(&mut self, time: Duration, late: bool) {
        let end = self.now + time;
        while !late && let Some(next) = self.status.deadline().filter(|next| *next <= end) {
            self.now = next;
            self.settle();
        }
        self.now = end;
        self.settle();
    }

    fn apply(&mut self, op: u8, value: u8, rest: &mut &[u8]) {
        let (now, status) = (self.now, &mut self.status);
        match op % 13 {
            0 => self.wait(Duration::from_millis(u64::from(value) * 16), false),
            1 => self.wait(Duration::from_secs(u64::from(value).pow(3)), true),
            2 => {
                let count = usize::from(value).min(rest.len());
                let (bytes, after) = rest.split_at(count);
                *rest = after;
                status.received(now, bytes);
            }
            3 => status.received(now, format!("CONNECT 2:{value}\n").as_bytes()),
            4 => {
                let line = format!("CONNECT 3:1 {}\n", format!("{value:02x}").repeat(32));
                status.received(now, line.as_bytes());
            }
            5 => {
                self.told += 1;
                self.attempts.push(status.put_started(now, host(value)));
            }
            6 => {
                let back = usize::from(value / 2 % 4);
                let given = self.attempts.iter().rev().nth(back).copied();
                let ok = value.is_multiple_of(2);
                let counted = given.is_some_and(|attempt| status.verified(now, attempt, ok));
                assert!(!counted || back == 0, "an old number counted");
                assert!(!counted || !ok || status.state() == State::Connected);
                self.told += usize::from(counted);
            }
            7 => _ = status.call_answered(now, 200),
            8 => {
                status.host_lost(now);
                assert_ne!(status.state(), State::Connected);
            }
            9 => status.write_failed(now),
            10 => status.port_appeared(now),
            11 => _ = status.call_answered(now, 401),
            _ => {
                self.told += 1;
                status.know(now, host(value));
            }
        }
        self.settle();
    }
}

/// Returns the largest number of events within one second.
fn densest(times: &[Uptime]) -> usize {
    let second = Duration::from_secs(1);
    let within =
        |first: Uptime| times.iter().filter(|it| **it >= first && **it - first < second).count();
    times.iter().map(|first| within(*first)).max().unwrap_or(0)
}

pub fn run(data: &[u8]) {
    let now = Uptime::from_millis(5000);
    let mut run = Run {
        status: Status::new(now, Intervals::default()),
        now,
        attempts: Vec::new(),
        writes: Vec::new(),
        calls: Vec::new(),
        told: 0,
        last_line: b"",
    };
    run.settle();
    // Enough to reach every state many times, and few enough to count densities quickly.
    let mut rest = &data[..data.len().min(400)];
    while let [op, value, after @ ..] = rest {
        rest = after;
        run.apply(*op, *value, &mut rest);
    }
    assert!(densest(&run.writes) <= 8 + run.told, "{:?}", run.writes);
    assert!(densest(&run.calls) <= 11 + run.told, "{:?}", run.calls);
    let before = run.writes.len();
    run.wait(Duration::from_secs(34), false);
    assert!(run.writes.len() > before, "silent forever");

    run.status.stop(run.now);
    run.settle();
    assert_eq!(run.last_line, b"STOPPED\nSTOPPED\n");
    let written = run.writes.len();
    for (op, value) in (2..13).zip(0..) {
        if op != 9 {
            run.apply(op, value, &mut &b""[..]);
        }
    }
    assert_eq!((run.status.state(), run.status.deadline()), (State::Stopped, None));
    assert_eq!(run.writes.len(), written);
}
