//! The status machine against a simulated host.

use super::*;
use mote_qemu::{LOOK, Reader, Ring};

#[derive(PartialEq)]
enum Daemon {
    Down,
    /// The host has no agent.
    Unaware,
    Started,
}

/// A host according to P§2.3. It reads its ring at its start, after an event of the port, and every
/// 10 s without one. It sends PUT only once, when the line that counts becomes STARTED.
struct Simulated {
    ring: Ring,
    /// Time from a visible write to its event if there is no dummy port to kick.
    lag: u64,
    daemon: Daemon,
    reads: Vec<u64>,
    /// Number of PUTs that will fail.
    failing: u32,
    host: Host,
}

impl Simulated {
    fn new(incus: bool, lag: u64) -> Self {
        let ring = Ring::new(if incus { Reader::Incus } else { Reader::Lxd });
        let reads = [0].into();
        Self { ring, lag, daemon: Daemon::Unaware, reads, failing: 0, host: HOST }
    }

    fn write(&mut self, now: u64, line: &[u8], visible: bool) {
        self.ring.write(line);
        if visible && self.up() {
            // Each event restarts the host's reading period.
            self.reads.retain(|read| *read <= now + self.lag);
            self.reads.push(now + self.lag);
        }
    }

    fn up(&self) -> bool {
        self.daemon != Daemon::Down
    }

    fn next_read(&self) -> u64 {
        self.reads.iter().copied().min().unwrap_or(u64::MAX)
    }

    fn read(&mut self, now: u64, status: &mut Status) {
        self.reads.retain(|at| *at > now);
        if self.reads.is_empty() {
            self.reads.push(now + LOOK * 1000);
        }
        match self.ring.read().as_deref() {
            Some(b"STARTED") if self.daemon == Daemon::Unaware => {
                self.daemon = Daemon::Started;
                if self.failing > 0 {
                    // The PUT does not reach the agent.
                    self.failing -= 1;
                    return;
                }
                let attempt = status.put_started(at(now), self.host);
                assert!(status.verified(at(now), attempt, true));
            }
            Some(b"STOPPED") => self.daemon = Daemon::Unaware,
            Some(_) | None => {}
        }
    }

    /// Restarts the daemon: it has no agent, listens on another port, and reads the ring
    /// immediately.
    fn start(&mut self, now: u64) {
        self.host.address.port += 1;
        (self.daemon, self.reads) = (Daemon::Unaware, [now].into());
    }

    fn stop(&mut self) {
        (self.daemon, self.reads) = (Daemon::Down, Vec::new());
    }
}

/// Performs the actions that are due; returns the time of the next one.
fn step(host: &mut Simulated, status: &mut Status, now: u64) -> u64 {
    for action in actions(status, now) {
        match action {
            Action::Write { line, visible, .. } => host.write(now, line, visible),
            Action::Verify { host: target, attempt } => {
                status.verified(at(now), attempt, host.up() && target == host.host);
            }
            _ => {}
        }
    }
    if host.up() && host.next_read() <= now {
        host.read(now, status);
    }
    status.deadline().unwrap().as_millis().min(host.next_read()).max(now + 1)
}

/// Runs both until `end`, or until they are connected; returns the time.
fn together(host: &mut Simulated, status: &mut Status, mut now: u64, end: u64) -> u64 {
    while now < end {
        let next = step(host, status, now);
        let known = status.host() == Some(host.host);
        if host.daemon == Daemon::Started && known && status.state() == State::Connected {
            break;
        }
        now = next.min(end);
    }
    now
}

const NEVER: u64 = 1_000_000;

#[test]
fn reconnects_to_a_restarted_host_within_two_seconds() {
    let mut slowest = 0;
    for (incus, lag) in [(false, 0), (true, 0), (false, 1000), (true, 1000)] {
        for down in [2000, 5000, 16_000, 60_000] {
            // Whether the guest has noticed meanwhile, and when.
            for noticed in [None, Some(100), Some(1900)] {
                // Between two announcements, and a little more.
                for phase in (0..32_000).step_by(500) {
                    let (mut host, mut status) = (Simulated::new(incus, lag), status());
                    let begun = together(&mut host, &mut status, 0, NEVER);
                    // Stays in CONNECTED for some time while the host reads.
                    let mut now = begun;
                    while now < begun + phase {
                        now = step(&mut host, &mut status, now);
                    }
                    let killed = begun + phase;
                    host.stop();
                    now = killed;
                    if let Some(when) = noticed {
                        together(&mut host, &mut status, killed, killed + when);
                        now = killed + when;
                        status.host_lost(at(now));
                    }
                    together(&mut host, &mut status, now, killed + down);
                    host.start(killed + down);
                    let back = together(&mut host, &mut status, killed + down, NEVER);
                    let took = back - killed - down;
                    slowest = slowest.max(took);
                    // The ring holds the line of an agent that has noticed nothing.
                    let limit = if noticed.is_none() { 0 } else { 2000 + lag };
                    assert!(
                        took <= limit,
                        "incus {incus} lag {lag} down {down} noticed {noticed:?} phase {phase}: {took}"
                    );
                }
            }
        }
    }
    println!("slowest: {slowest} ms");
}

#[test]
fn makes_the_host_repeat_a_lost_put() {
    for incus in [false, true] {
        for failing in 1..4 {
            let (mut host, mut status) = (Simulated::new(incus, 0), status());
            host.failing = failing;
            let took = together(&mut host, &mut status, 0, NEVER);
            // 15 s, then each 30 s; the STARTED follows 1.5 s later (twice on Incus, at worst).
            let turns = 15_000 + u64::from(failing - 1) * 30_000;
            assert!((turns..=turns + 3000).contains(&took), "{failing}: {took}");
        }
    }
}

#[test]
fn reports_a_kill_that_the_host_did_not_notice() {
    let (mut host, mut first) = (Simulated::new(false, 0), status());
    let killed = together(&mut host, &mut first, 0, NEVER);
    drop(first);
    let mut second = Status::new(at(killed + 50), Intervals::default());
    let took = together(&mut host, &mut second, killed + 50, NEVER) - killed;
    assert!(took <= 17_000, "{took}");
    // With agent.conf the agent does not wait for that.
    let mut third = Status::new(at(took + 100_000), Intervals::default());
    third.know(at(took + 100_000), host.host);
    assert_eq!(together(&mut host, &mut third, took + 100_000, NEVER), took + 100_000);
}

#[test]
fn the_first_host_finds_the_agent_at_any_time() {
    for incus in [false, true] {
        for late in (0..70_000).step_by(130) {
            let (mut host, mut status) = (Simulated::new(incus, 0), status());
            host.stop();
            together(&mut host, &mut status, 0, late);
            host.start(late);
            let took = together(&mut host, &mut status, late, NEVER) - late;
            assert!(took <= 2000, "incus {incus} late {late}: {took}");
        }
    }
}

#[test]
fn every_host_reads_stopped_after_any_line() {
    for incus in [false, true] {
        for when in (0..12_000).step_by(170) {
            let (mut host, mut status) = (Simulated::new(incus, 0), status());
            let begun = together(&mut host, &mut status, 0, NEVER);
            for action in run(&mut status, begun, when) {
                if let (now, Action::Write { line, visible, .. }) = action {
                    host.write(now, line, visible);
                }
            }
            status.stop(at(when.max(begun)));
            for action in actions(&mut status, when.max(begun)) {
                if let Action::Write { line, visible, .. } = action {
                    host.write(when, line, visible);
                }
            }
            host.read(when, &mut status);
            assert!(host.daemon != Daemon::Started, "incus {incus} when {when}");
        }
    }
}

#[test]
fn agent_conf_connects_while_started_is_repeated() {
    let mut status = status();
    status.know(at(0), HOST);
    let first = actions(&mut status, 0);
    let Action::Verify { host: HOST, attempt } = first[0] else {
        panic!("{first:?}");
    };
    assert_eq!((first[1], status.state()), (started(), State::Started));
    assert!(status.verified(at(50), attempt, true));
    assert_eq!(status.state(), State::Connected);
    // No CONNECTED: it would hide STARTED from a host that reads the last line only.
    let seen = lines(&run(&mut status, 50, 45_000));
    let visible: Vec<_> = seen.iter().filter(|line| line.2).map(|line| (line.0, line.1)).collect();
    let eager = (1..=10).map(|second| (second * 1000 + 50, "STARTED"));
    assert_eq!(visible[..10], eager.collect::<Vec<_>>());
    // Once: the host's call may have failed because the agent was too slow, and the host does not
    // repeat it.
    assert_eq!(visible[10..], [(15_000, "STOPPED\nSTOPPED"), (16_500, "STARTED")]);
    let seen = run(&mut status, 45_000, 600_000);
    assert!(times(&seen, "STOPPED\nSTOPPED").is_empty(), "{seen:?}");
}

#[test]
fn does_not_report_stopped_if_called_after_verification() {
    let mut status = status();
    status.know(at(0), HOST);
    let Action::Verify { attempt, .. } = actions(&mut status, 0)[0] else { unreachable!() };
    assert!(status.verified(at(50), attempt, true));
    run(&mut status, 50, 14_000);
    let attempt = status.put_started(at(14_000), HOST);
    assert!(status.verified(at(14_010), attempt, true));
    let seen = run(&mut status, 14_010, 600_000);
    assert!(times(&seen, "STOPPED\nSTOPPED").is_empty(), "{seen:?}");
}

#[test]
fn agent_conf_does_not_replace_the_hosts_put() {
    let mut status = connected(0);
    let other = at_port(9);
    status.know(at(1), other);
    assert_eq!((status.host(), status.state()), (Some(HOST), State::Connected));
    status.host_lost(at(2));
    status.know(at(3), other);
    assert_eq!(status.host(), Some(HOST));
}
