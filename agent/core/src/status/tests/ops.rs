//! The status machine under any sequence of operations.

use super::*;
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof};
use proptest::proptest;
use std::vec;

#[derive(Clone, Debug)]
enum Op {
    Wait(u64),
    Bytes(Vec<u8>),
    Put(u32),
    /// Attempt number, counted back from the latest, and the result.
    Verified(usize, bool),
    CallOk,
    CallRefused,
    Lost,
    Failed,
    Appeared,
    Know,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0u64..4000).prop_map(Op::Wait),
        1 => (0u64..100_000_000).prop_map(Op::Wait),
        2 => prop_oneof![
            Just(b"CONNECT 2:9\n".to_vec()),
            Just(line(at_port(9)).into_bytes()),
            Just(b"\nCONNECT 3:7 \nCONNECT 2:4000\nCONN".to_vec()),
            Just(b"STARTED\nCONNECTED\n".to_vec()),
            proptest::collection::vec(any::<u8>(), 0..40),
        ].prop_map(Op::Bytes),
        2 => (1u32..4).prop_map(Op::Put),
        3 => (0usize..3, any::<bool>()).prop_map(|(back, ok)| Op::Verified(back, ok)),
        2 => Just(Op::CallOk),
        2 => Just(Op::CallRefused),
        2 => Just(Op::Lost),
        1 => Just(Op::Failed),
        1 => Just(Op::Appeared),
        1 => Just(Op::Know),
    ]
}

/// Drives a machine and checks its invariants.
struct Driver {
    status: Status,
    now: u64,
    /// Attempt numbers, the latest last.
    attempts: Vec<u32>,
    writes: Vec<u64>,
    tries: Vec<u64>,
    news: usize,
}

impl Driver {
    fn apply(&mut self, op: Op) {
        let (now, status) = (at(self.now), &mut self.status);
        match op {
            Op::Wait(millis) => return self.wait(millis),
            Op::Bytes(bytes) => status.received(now, &bytes),
            Op::Put(port) => {
                self.news += 1;
                self.attempts.push(status.put_started(now, at_port(port)));
            }
            Op::Verified(back, ok) => {
                let given = self.attempts.iter().rev().nth(back).copied();
                let counted = given.is_some_and(|attempt| status.verified(now, attempt, ok));
                assert!(!counted || back == 0, "an old number counted");
                assert!(!counted || !ok || status.state() == State::Connected);
                self.news += usize::from(counted);
            }
            Op::CallOk => {
                let before = status.state();
                status.call_ok(now);
                assert_eq!(status.state(), before);
            }
            Op::CallRefused => _ = status.call_refused(now),
            Op::Lost => {
                status.host_lost(now);
                assert_ne!(status.state(), State::Connected);
            }
            Op::Failed => status.write_failed(now),
            Op::Appeared => status.port_appeared(now),
            Op::Know => {
                self.news += 1;
                status.know(now, HOST);
            }
        }
        self.settle();
    }

    fn wait(&mut self, millis: u64) {
        let end = self.now + millis;
        // A suspended guest wakes up late, once; otherwise the deadlines are kept.
        if millis < 100_000 {
            while let Some(next) = self.status.deadline().filter(|next| *next <= at(end)) {
                self.now = next.as_millis();
                self.settle();
            }
        }
        self.now = end;
        self.settle();
    }

    /// Polls until no action is due.
    fn settle(&mut self) {
        for action in actions(&mut self.status, self.now) {
            match action {
                Action::Write { line, visible, .. } => {
                    assert!(line.len() <= 16 && line.ends_with(b"\n"));
                    let silent = line == b"STARTED\nSTARTED\n";
                    assert_eq!(visible, !silent);
                    assert!(!silent || self.status.state() == State::Connected);
                    self.writes.push(self.now);
                }
                Action::Verify { attempt, .. } => {
                    assert!(!self.attempts.contains(&attempt), "a number was given out twice");
                    self.attempts.push(attempt);
                    self.tries.push(self.now);
                }
                Action::Refused(_) | Action::HostAddress(_) | Action::Changed(_) => {}
            }
        }
        self.timers_fit_the_state();
    }

    /// Checks that each timer runs only in the states that its comment names.
    fn timers_fit_the_state(&self) {
        let (status, state) = (&self.status, self.status.state());
        let runs = |timer| status.timers.get(timer).is_some();
        assert!(runs(Timer::Turn) || state != State::Started);
        let may_be_uncalled = state == State::Connected && status.heard == Heard::Nothing;
        assert!(!runs(Timer::Turn) || state == State::Started || may_be_uncalled);
        assert_eq!(runs(Timer::Announce), matches!(state, State::Started | State::Connected));
        assert!(!runs(Timer::Refresh) || state == State::Connected);
        assert_eq!(runs(Timer::Follow), status.waiting.is_some());
        let how = status.link.verifying.map(|verification| verification.how);
        assert_eq!(runs(Timer::Expire), how.is_some());
        assert!(!runs(Timer::Call) || how.is_some());
        assert!(!runs(Timer::Retry) || (how.is_none() && status.host().is_some()));
        assert!(state != State::Connect || how.is_some_and(|how| how != How::Own));
        assert!(state != State::Stopped || how.is_none());
    }
}

/// Most events within one second.
fn densest(times: &[u64]) -> usize {
    let within =
        |first: u64| times.iter().filter(|time| (first..first + 1000).contains(*time)).count();
    times.iter().map(|first| within(*first)).max().unwrap_or(0)
}

proptest! {
    #[test]
    fn any_operations_have_bounded_effects(ops in proptest::collection::vec(op(), 1..80)) {
        let mut driver = Driver {
            status: status(),
            now: 0,
            attempts: Vec::new(),
            writes: Vec::new(),
            tries: Vec::new(),
            news: 0,
        };
        driver.settle();
        for op in ops {
            driver.apply(op);
        }
        // MIN_LINE_GAP apart, and at most one more for each input that gave or confirmed an
        // address.
        let writes = densest(&driver.writes);
        prop_assert!(writes <= 8 + driver.news, "{writes} writes within a second");
        let tries = densest(&driver.tries);
        prop_assert!(tries <= 11 + driver.news, "{tries} calls within a second");
        // In any state an announcement and a call follow within 30 s.
        let (begun, status) = (driver.now, &mut driver.status);
        let seen = run_with(status, begun, begun + 34_000, None);
        prop_assert!(lines(&seen).iter().any(|line| line.1.ends_with("STARTED") && line.2));
        let now = begun + 34_000;
        status.stop(at(now));
        let seen = run(status, now, now);
        prop_assert_eq!(lines(&seen).pop().map(|line| line.1), Some("STOPPED\nSTOPPED"));
        driver.timers_fit_the_state();
        let status = &driver.status;
        prop_assert_eq!(status.deadline(), None);
    }
}
