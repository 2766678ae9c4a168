//! CONNECT lines that are cut, merged, echoed or hostile, with a correct or an invalid address.

use super::*;

/// A machine that has announced itself.
fn announced() -> Status {
    let mut status = status();
    run(&mut status, 0, 0);
    status
}

/// A machine that has followed a CONNECT line to `HOST` and verified it, at 0.
fn by_line() -> Status {
    let mut status = announced();
    status.received(at(0), line(HOST).as_bytes());
    let seen = run_with(&mut status, 0, 0, Some(true));
    assert_eq!(lines(&seen), [(0, "CONNECTED", true)]);
    status
}

#[test]
fn follows_a_connect_line_cut_anywhere() {
    let text = line(HOST).replace('\n', "\r\n");
    let text = format!("noise\0\nSTARTED\r\n{text}STAR").into_bytes();
    for size in 1..=text.len() {
        let mut status = announced();
        for cut in text.chunks(size) {
            status.received(at(100), cut);
        }
        let expected = Action::Verify { host: HOST, attempt: 1 };
        assert_eq!(actions(&mut status, 100), [expected], "{size}");
        assert_eq!(status.state(), State::Connect);
        assert!(status.verified(at(120), 1, true));
        assert_eq!(lines(&run(&mut status, 120, 120)), [(120, "CONNECTED", true)]);
        // The bytes after the line end begin the next line.
        status.received(at(130), b"TED\nCONNECT 2:5\n");
        assert_eq!(tries(&run(&mut status, 130, 300)), [200], "{size}");
    }
}

#[test]
fn logs_each_new_address_once() {
    let mut status = announced();
    status.received(at(0), line(HOST).as_bytes());
    let verify = |attempt| Action::Verify { host: HOST, attempt };
    assert_eq!(polled(&mut status, 0), [Action::HostAddress(HOST.address), verify(1)]);
    assert!(status.verified(at(1), 1, false));
    assert_eq!(polled(&mut status, 200), [verify(2)]);
}

#[test]
fn drops_an_overlong_line_and_a_partial_one_with_its_port() {
    let mut status = announced();
    let long = format!("CONNECT 2:4000{}\n", " ".repeat(crate::limits::LINE));
    status.received(at(0), format!("{long}CONNECT 2:40").as_bytes());
    status.port_appeared(at(1));
    status.received(at(2), format!("00\n{}", line(at_port(7))).as_bytes());
    let expected = Action::Verify { host: at_port(7), attempt: 1 };
    assert_eq!(actions(&mut status, 2), [expected]);
    assert!(status.verified(at(2), 1, true));
    // The same holds for a line with a wrong address.
    status.received(at(3), b"CONNECT 2:4");
    status.port_appeared(at(1000));
    status.received(at(1001), b"0\n");
    assert!(tries(&run(&mut status, 1001, 3000)).is_empty());
}

#[test]
fn ignores_its_own_echo() {
    // As with shared memory, every line is echoed, cut in two.
    let (mut plain, mut echoed) = (by_line(), by_line());
    let (mut now, mut seen) = (1, Vec::new());
    while now <= 30_000 {
        for action in actions(&mut echoed, now) {
            if let Action::Write { line, .. } = action {
                let (front, back) = line.split_at(line.len() / 3);
                echoed.received(at(now), front);
                echoed.received(at(now), back);
            }
            seen.push((now, action));
        }
        now = echoed.deadline().unwrap().as_millis();
    }
    assert_eq!(seen, run(&mut plain, 1, 30_000));
}

#[test]
fn verifies_every_certificate() {
    let mut status = status();
    run(&mut status, 0, 0);
    status.received(at(1), b"CONNECT 2:4000\n");
    assert_eq!(actions(&mut status, 1), [Action::Refused(RefusedLine::NoCertificate)]);
    // Refusals are logged at intervals, not each time.
    status.received(at(2), b"CONNECT 2:4000\nCONNECT x\n");
    assert_eq!(actions(&mut status, 2), []);
    status.received(at(10_001), b"CONNECT x\n");
    assert!(actions(&mut status, 10_001).contains(&Action::Refused(RefusedLine::Malformed)));
    status.received(at(10_002), line(HOST).as_bytes());
    let expected = Action::Verify { host: HOST, attempt: 1 };
    assert_eq!(actions(&mut status, 10_002), [expected]);
}

#[test]
fn tries_an_announced_host_then_announces_again() {
    let mut status = announced();
    status.received(at(0), line(HOST).as_bytes());
    let seen = run_with(&mut status, 0, 2500, Some(false));
    // The pauses grow, since many other guests may be calling the host, too.
    assert_eq!(tries(&seen), [0, 100, 200, 400, 800, 1600]);
    assert_eq!(lines(&seen)[0], (1600, "STARTED", true));
    assert_eq!(status.state(), State::Started);
}

#[test]
fn a_false_address_does_not_replace_a_verified_one() {
    let mut status = connected(0);
    run(&mut status, 0, 500);
    status.received(at(600), b"CONNECT 2:666\n");
    run_with(&mut status, 600, 2600, Some(false));
    assert_eq!((status.state(), status.address()), (State::Started, Some(HOST.address)));
    let seen = run_with(&mut status, 2601, 4000, Some(true));
    let own = |(_, action): &_| matches!(action, Action::Verify { host: HOST, .. });
    assert!(seen.iter().any(own) && status.state() == State::Connected);
}

#[test]
fn retries_expect_the_certificate_of_the_line() {
    let mut status = status();
    status.received(at(0), format!("CONNECT 2:4000 {}\n", "01".repeat(32)).as_bytes());
    run_with(&mut status, 0, 0, Some(true));
    status.host_lost(at(500));
    let seen = run(&mut status, 500, 1500);
    let host = Host { fingerprint: [1; 32], ..HOST };
    let expected = Action::Verify { host, attempt: 2 };
    assert!(seen.contains(&(1500, expected)), "{seen:?}");
}

#[test]
fn verifies_a_repeated_address_without_leaving_connected() {
    let mut status = by_line();
    run(&mut status, 0, 700);
    status.received(at(700), b"CONNECT 2:4000\n");
    assert_eq!(polled(&mut status, 700), [Action::Verify { host: HOST, attempt: 2 }]);
    assert_eq!(status.state(), State::Connected);
    assert!(status.verified(at(710), 2, true));
    assert_eq!((status.state(), status.since()), (State::Connected, at(0)));
    assert_eq!(lines(&run(&mut status, 710, 710)), [(710, "CONNECTED", true)]);
    // If the host is gone, the agent retries for a while and then reports the loss.
    status.received(at(900), b"CONNECT 2:4000\n");
    let seen = run_with(&mut status, 900, 3500, Some(false));
    let while_connected = [900, 1000, 1100, 1300, 1700, 2500];
    assert_eq!((&tries(&seen)[..6], status.state()), (&while_connected[..], State::Started));
}

#[test]
fn writes_seldom_to_a_host_that_reads_every_line() {
    let seen = run(&mut by_line(), 1, 62_000);
    assert_eq!(lines(&seen), [(30_000, "STARTED", true), (60_000, "STARTED", true)]);
}

#[test]
fn a_put_precedes_a_waiting_line() {
    let mut status = announced();
    status.received(at(0), line(at_port(1)).as_bytes());
    run(&mut status, 0, 0);
    status.received(at(1), line(at_port(2)).as_bytes());
    let attempt = status.put_started(at(2), HOST);
    assert!(tries(&run(&mut status, 2, 1000)).is_empty());
    assert!(status.verified(at(1000), attempt, true));
    assert_eq!(status.host(), Some(HOST));
}

#[test]
fn the_latest_line_counts() {
    let mut status = announced();
    let [one, two, three] = [1, 2, 3].map(at_port);
    status.received(at(0), line(one).as_bytes());
    run(&mut status, 0, 0);
    // The second is dropped: the host returned to the first address, whose verification runs.
    status.received(at(1), [line(two), line(one)].concat().as_bytes());
    assert!(tries(&run(&mut status, 1, 1000)).is_empty());
    status.received(at(1000), [line(two), line(three)].concat().as_bytes());
    let expected = Action::Verify { host: three, attempt: 2 };
    assert_eq!(actions(&mut status, 1000), [expected]);
}

#[test]
fn limits_the_calls_that_a_hostile_writer_causes() {
    // The calls hang, fail or succeed.
    for (answer, most) in [(None, 11), (Some(false), 110), (Some(true), 110)] {
        let (mut status, mut calls) = (announced(), 0);
        for now in 0..10_000 {
            let (cid, fingerprint) = (u32::try_from(now + 2).unwrap(), [0xab; 32]);
            let hosts =
                (1..20).map(|port| Host { address: HostAddress { cid, port }, fingerprint });
            let words: String = hosts.map(line).collect();
            status.received(at(now), words.as_bytes());
            status.received(at(now), &[b'x'; 300]);
            status.received(at(now), b"\n");
            for action in actions(&mut status, now) {
                if let Action::Verify { attempt, .. } = action {
                    calls += 1;
                    if let Some(ok) = answer {
                        assert!(status.verified(at(now), attempt, ok));
                    }
                }
            }
        }
        assert!((10..=most).contains(&calls), "{answer:?}: {calls}");
    }
}
