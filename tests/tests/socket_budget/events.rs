//! Listeners that do not read, and long events.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;

use mote_tests::conform::wire::Wire;
use mote_tests::conform::ws::{Message, Ws};
use mote_tests::{Client, Pair};

use super::{LIMIT, MEGABYTE, Victim, at_once};

/// A former limit of listeners.
const MANY: usize = 1024;

fn guest_listener(pair: &Pair) -> Result<UnixStream, String> {
    let (head, reader) = pair.get("/1.0/events");
    if head.starts_with("HTTP/1.1 200") { Ok(reader.into_inner()) } else { Err(head) }
}

fn host_listener(client: &Client) -> Result<Wire, String> {
    let mut wire = client.connect()?;
    wire.send(b"GET /1.0/events HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let head = String::from_utf8_lossy(&wire.within(LIMIT).until(b"\r\n\r\n")?).into_owned();
    if head.starts_with("HTTP/1.1 200") { Ok(wire) } else { Err(head) }
}

fn event(number: usize) -> String {
    let value = "x".repeat(MEGABYTE);
    format!(r#"{{"type":"config","metadata":{{"key":"user.{number}","value":"{value}"}}}}"#)
}

/// Posts events; with a listener, waits until it has each one. On a busy machine a listener that
/// lags behind by a whole event for a second is rightly dropped.
fn post(victim: &Victim, count: usize, heard: Option<&mpsc::Receiver<usize>>) {
    let mut wire = victim.host.connect().unwrap();
    for number in 0..count {
        let answer = wire.within(LIMIT).ask("POST", "/1.0/events", "", event(number).as_bytes());
        assert_eq!(answer.map(|answer| answer.status), Ok(200), "{number}");
        if let Some(heard) = heard {
            assert_eq!(heard.recv(), Ok(number), "the listener was dropped");
        }
    }
}

#[test]
fn drops_a_stalled_guest_listener_without_loss_for_others() {
    let mut victim = Victim::start();
    let deaf = guest_listener(&victim.pair).unwrap();
    let good = guest_listener(&victim.pair).unwrap();
    let (tell, heard) = mpsc::channel();
    std::thread::spawn(move || {
        for (number, event) in BufReader::with_capacity(1 << 16, good).split(b'\n').enumerate() {
            assert!(event.unwrap().len() > MEGABYTE);
            if tell.send(number).is_err() {
                break;
            }
        }
    });
    post(&victim, 500, Some(&heard));
    victim.survived("a deaf listener in the guest and 500 events of 1 MB");
    assert!(victim.pair.log().contains("too slow"), "{}", victim.pair.log());
    drop(deaf);
}

#[test]
fn drops_a_stalled_host_listener_without_loss_for_others() {
    let mut victim = Victim::start();
    let deaf = [Ws::open(&victim.host, "/1.0/events").unwrap()];
    let deaf_lines = host_listener(&victim.host).unwrap();
    let mut good = Ws::open(&victim.host, "/1.0/events").unwrap();
    let (tell, heard) = mpsc::channel();
    std::thread::spawn(move || {
        good.within(LIMIT);
        for number in 0..100 {
            let Message::Text(text) = good.message().unwrap() else { panic!("{number}: no text") };
            assert!(text.len() > MEGABYTE);
            tell.send(number).unwrap();
        }
    });
    post(&victim, 100, Some(&heard));
    victim.survived("a deaf websocket and a deaf stream of the host and 100 events of 1 MB");
    drop((deaf, deaf_lines));
}

#[test]
fn a_thousand_stalled_guest_listeners_share_one_copy() {
    let mut victim = Victim::start();
    let deaf = taken((0..MANY).map(|_| guest_listener(&victim.pair)).collect());
    post(&victim, 5, None);
    victim.survived(&format!("{} deaf listeners in the guest and 5 events of 1 MB", deaf.len()));
}

#[test]
fn a_hundred_stalled_host_listeners_share_one_copy() {
    let mut victim = Victim::start();
    let deaf = taken(at_once(32, 100, |_| host_listener(&victim.host)));
    post(&victim, 5, None);
    victim.survived(&format!("{} deaf listeners of the host and 5 events of 1 MB", deaf.len()));
}

/// Returns the accepted ones; the agent must have refused all others with 503.
fn taken<T>(all: Vec<Result<T, String>>) -> Vec<T> {
    let mut taken = Vec::new();
    for one in all {
        match one {
            Ok(one) => taken.push(one),
            Err(head) => assert!(head.starts_with("HTTP/1.1 503"), "{head}"),
        }
    }
    assert!(taken.len() >= 32, "{}", taken.len());
    taken
}
