//! Effect of ordinary calls to the host.

use super::*;

#[test]
fn an_ordinary_call_does_not_verify_the_host() {
    // Simulates files of another instance: the host answers, but every verification fails.
    let mut status = status();
    status.know(at(0), HOST);
    let mut seen = run_with(&mut status, 0, 0, Some(false));
    for now in (0..60_000).step_by(10) {
        status.call_answered(at(now), 200);
        seen.extend(run_with(&mut status, now, now, Some(false)));
        assert_eq!(status.state(), State::Started);
    }
    assert!(tries(&seen).len() <= 61, "{}", tries(&seen).len());
}

#[test]
fn a_refused_call_triggers_a_verification() {
    for still_ours in [true, false] {
        let mut status = connected(0);
        run(&mut status, 0, 5000);
        let announced = status.deadline();
        assert!(!status.call_answered(at(5000), 500), "the answer of a reachable host");
        assert!(status.call_answered(at(5000), 401) && !status.call_answered(at(5000), 401));
        let seen = run_with(&mut status, 5000, 5000, Some(still_ours));
        assert_eq!(tries(&seen), [5000]);
        let expected = if still_ours { State::Connected } else { State::Started };
        assert_eq!(status.state(), expected);
        if still_ours {
            assert_eq!((lines(&seen), status.deadline()), (Vec::new(), announced));
        }
        // Endless bad requests must not cause a flood of verifications.
        let mut seen = Vec::new();
        for now in 5000..9000 {
            status.call_answered(at(now), 401);
            seen.extend(run_with(&mut status, now, now, Some(still_ours)));
        }
        assert!(tries(&seen).len() <= 4, "{:?}", tries(&seen));
    }
}

#[test]
fn a_failed_call_reports_started_immediately() {
    let mut status = connected(10);
    run(&mut status, 10, 700);
    status.host_lost(at(700));
    assert_eq!(status.state(), State::Started);
    assert_eq!(actions(&mut status, 700), [started()]);
    regain(&mut status, 800);
    assert_eq!((status.state(), status.since()), (State::Connected, at(800)));
    assert!(times(&run(&mut status, 800, 7000), "CONNECTED").is_empty());
}

#[test]
fn missing_descriptors_do_not_lose_the_host() {
    let mut status = connected(0);
    run(&mut status, 0, 5000);
    // A refused call and a CONNECT line request verifications, which cannot be made for a minute.
    assert!(status.call_answered(at(5000), 401));
    status.received(at(5000), b"CONNECT 2:4000\n");
    let mut made = 0;
    for now in (5000..65_000).step_by(100) {
        for action in actions(&mut status, now) {
            let Action::Verify { attempt, .. } = action else { continue };
            made += 1;
            assert!(status.not_made(at(now), attempt) && !status.not_made(at(now), attempt));
        }
        assert_eq!(status.state(), State::Connected, "{now}");
    }
    assert!((30..=65).contains(&made), "{made}");
    let seen = run_with(&mut status, 65_000, 70_000, Some(true));
    assert_eq!((tries(&seen).len(), status.state()), (1, State::Connected));
    // In other states it counts as a failure: the agent announces that it waits for the host.
    let attempt = status.put_started(at(70_000), HOST);
    assert!(status.not_made(at(70_000), attempt));
    assert_eq!(status.state(), State::Started);
}

#[test]
fn reads_a_flood_in_portions_and_logs_it_occasionally() {
    let mut status = connected(0);
    let (mut read, mut named) = (0, 0);
    for now in 0..20_000 {
        for _ in 0..100 {
            if status.read_paused_until(at(now)).is_none() {
                status.received(at(now), &[0; 256]);
                read += 256;
            }
        }
        let all: Vec<_> = core::iter::from_fn(|| status.poll(at(now))).collect();
        named += all.iter().filter(|it| matches!(it, Action::Refused(RefusedLine::Flood))).count();
    }
    assert_eq!(read, 20 * connect::FLOOD_BYTES);
    assert_eq!(named, 2);
    // After the pause, the machine reads a line.
    let end = status.read_paused_until(at(19_999)).unwrap();
    assert!(end <= at(20_999), "{end:?}");
    status.received(end, b"\nCONNECT 2:7\n");
    assert!(
        core::iter::from_fn(|| status.poll(end)).any(|it| matches!(it, Action::HostAddress(_)))
    );
}
