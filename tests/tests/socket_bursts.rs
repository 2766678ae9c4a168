//! Bursts of guests: the agent refuses none, makes few full TLS handshakes, and answers all.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{Read, Write};
use std::sync::mpsc::channel;
use std::time::Duration;

use mote_tests::{NAME, Pair, kill, patient};
use rustix::process::Signal;

/// Sends one request from each of this many guests at once. Returns the number of full handshakes.
fn burst(pair: &Pair, guests: u64) -> u64 {
    let counts = || {
        let state = pair.host.state();
        [&state["connections"], &state["resumed"]].map(|count| count.as_u64().unwrap())
    };
    let [all, resumed] = counts();
    std::thread::scope(|threads| {
        for _ in 0..guests {
            threads.spawn(|| assert_eq!(pair.ask("GET", "/1.0/config/user.foo").1, "bar"));
        }
    });
    let [all_then, resumed_then] = counts();
    assert_eq!(all_then - all, guests);
    let full = guests - (resumed_then - resumed);
    println!("{guests} guests: {full} full handshakes");
    full
}

/// The core's tests (`tls/tickets`) check the number of full handshakes in a burst, because there a
/// call that waits its 250 ms does not depend on the machine's load.
#[test]
fn answers_a_burst_and_keeps_tickets_with_a_slow_host() {
    let pair = Pair::start("lxd", &["user.foo=bar"]);
    for millis in ["0", "100"] {
        pair.host.ok(&["fault", NAME, "slow", millis]);
        burst(&pair, 60);
    }
    // The burst has left enough tickets for the next guest.
    pair.host.ok(&["fault", NAME, "none"]);
    assert_eq!(burst(&pair, 1), 0);
}

#[test]
fn keeps_connections_that_arrive_while_it_is_busy() {
    const GUESTS: usize = 300;
    let pair = Pair::start("lxd", &[]);
    kill(Signal::STOP, pair.agent.0.id());
    // A client must block, because a full queue returns EAGAIN to one that does not.
    let (sender, came) = channel();
    std::thread::scope(|threads| {
        // They send immediately, because the agent evicts silent connections.
        let guest = || {
            let mut guest = pair.connect();
            guest.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
            sender.send(guest).unwrap();
        };
        threads.spawn(move || (0..GUESTS).for_each(|_| guest()));
        let mut guests = Vec::new();
        while let Ok(guest) = came.recv_timeout(patient(Duration::from_secs(10))) {
            guests.push(guest);
            if guests.len() == GUESTS {
                break;
            }
        }
        let kept = guests.len();
        kill(Signal::CONT, pair.agent.0.id());
        assert_eq!(kept, GUESTS, "the others were not");
        for mut guest in guests {
            let mut answer = String::new();
            guest.read_to_string(&mut answer).unwrap();
            assert!(answer.ends_with("[\"/1.0\"]\n"), "{answer}");
        }
    });
}
