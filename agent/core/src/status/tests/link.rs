//! Which host calls go to while another one is announced or verified.

use super::*;

/// The new host: another port, as after a restart of its daemon.
const NEW: Host = at_port(4001);

#[test]
fn a_new_host_replaces_a_verified_one_only_once_it_is_verified() {
    for by_put in [true, false] {
        for ok in [true, false] {
            let mut status = connected(0);
            run(&mut status, 0, 500);
            let attempt = if by_put {
                status.put_started(at(500), NEW)
            } else {
                status.received(at(500), line(NEW).as_bytes());
                attempt(&actions(&mut status, 500))
            };
            assert_eq!((status.state(), status.host()), (State::Connect, Some(HOST)));
            // Calls to the old host fail meanwhile, as after a restart, which changes nothing.
            status.host_lost(at(510));
            assert_eq!((status.state(), status.host()), (State::Connect, Some(HOST)));
            assert!(status.verified(at(520), attempt, ok));
            run_with(&mut status, 520, 2500, Some(false));
            // After a failure, a PUT's address stays, as in the Go agents, but a CONNECT line's
            // does not.
            let expected = if ok || by_put { NEW } else { HOST };
            assert_eq!(status.host(), Some(expected), "put {by_put} ok {ok}");
            assert_eq!(status.state() == State::Connected, ok);
        }
    }
}

#[test]
fn calls_an_unverified_host_without_an_alternative() {
    let mut status = status();
    assert_eq!(status.host(), None);
    // The host of a CONNECT line is not called: guests' secrets would reach an unverified host.
    status.received(at(0), line(NEW).as_bytes());
    actions(&mut status, 0);
    assert_eq!((status.state(), status.host()), (State::Connect, None));
    for host in [HOST, NEW] {
        status.put_started(at(1), host);
        assert_eq!(status.host(), Some(host));
    }
    // A lost host no longer counts after another is announced.
    let mut status = lost();
    assert_eq!(status.host(), Some(HOST));
    status.put_started(at(600), NEW);
    assert_eq!(status.host(), Some(NEW));
}

#[test]
fn alternates_with_a_micro_vms_address_until_a_host_has_given_one() {
    let asked = |seen: &[(u64, Action)]| {
        let port = |action: &Action| match action {
            Action::Verify { host: Host { address, fingerprint }, .. } => {
                assert_eq!((address.cid, *fingerprint), (2, HOST.fingerprint));
                Some(address.port)
            }
            _ => None,
        };
        seen.iter().filter_map(|(_, action)| port(action)).collect::<Vec<_>>()
    };
    let mut status = status();
    status.know(at(0), HOST);
    let ports = asked(&run_with(&mut status, 0, 120_000, Some(false)));
    assert_eq!(ports, [4000, 4000, 4000, 4000, 4000, 4000, 8444, 4000]);
    run_with(&mut status, 120_001, 200_000, Some(true));
    assert_eq!((status.state(), status.host()), (State::Connected, Some(at_port(8444))));
    put(&mut status, 200_001, NEW, false);
    let all = asked(&run_with(&mut status, 200_001, 300_000, Some(false)));
    assert!(all.len() > 2 && all.iter().all(|port| *port == 4001), "{all:?}");
}

#[test]
fn a_line_does_not_discard_an_earlier_put() {
    let mut status = connected(0);
    run(&mut status, 0, 500);
    let replaced = status.put_started(at(500), NEW);
    status.received(at(501), line(at_port(5)).as_bytes());
    run_with(&mut status, 501, 3000, Some(false));
    assert!(!status.verified(at(3000), replaced, true));
    assert_eq!((status.state(), status.host()), (State::Started, Some(NEW)));
}

#[test]
fn a_line_without_fingerprint_expects_the_current_certificate() {
    let mut status = connected(0);
    run(&mut status, 0, 500);
    status.received(at(500), b"CONNECT 2:4001\n");
    assert_eq!(actions(&mut status, 500), [Action::Verify { host: NEW, attempt: 2 }]);
    // The same line with its fingerprint is not a new line.
    status.received(at(501), line(NEW).as_bytes());
    assert!(tries(&run(&mut status, 501, 2000)).is_empty());
}
