//! Guest clients that request long answers and do not read them.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use mote_tests::NAME;

use super::{LIMIT, Victim, at_once};

/// A former limit of simultaneous answers.
const MANY: usize = 128;
const LONG: usize = 4_000_000;
/// Size of a long value, bytes; 1.9 MB with its escapes.
const PASSED: usize = 1_400_000;

/// Sets long values, which no command line could take.
fn give_values(victim: &mut Victim) {
    let host = &mut victim.pair.host;
    host.kill();
    let path = host.directory.join("instances").join(NAME).join("instance.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut instance: serde_json::Value = serde_json::from_str(&text).unwrap();
    instance["config"]["user.long"] = "x".repeat(LONG).into();
    instance["config"]["user.lines"] = "\u{e4}\n".repeat(PASSED / 3).into();
    std::fs::write(&path, instance.to_string()).unwrap();
    host.start();
    // The host's address may have changed.
    victim.host.announce();
    let asked = || victim.pair.ask("GET", "/1.0/config/user.foo").1;
    mote_tests::wait("the host", LIMIT, || (asked() == "bar").then_some(()));
    Victim::forget_peak(&victim.pair);
}

fn ask(victim: &Victim, key: &str) -> UnixStream {
    let mut stream = victim.pair.connect();
    let request = format!("GET /1.0/config/{key} HTTP/1.1\r\nHost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

#[test]
fn holds_one_long_answer_for_clients_that_do_not_read() {
    let mut victim = Victim::start();
    give_values(&mut victim);
    let deaf: Vec<_> = (0..MANY)
        .map(|number| ask(&victim, if number % 8 == 0 { "user.long" } else { "user.lines" }))
        .collect();
    // A new client waits until the host has begun those answers, but not until they are read.
    let begun = Instant::now();
    let asked = || victim.pair.ask("GET", "/1.0/config/user.foo").1;
    mote_tests::wait("a short answer", LIMIT, || (asked() == "bar").then_some(()));
    println!("a short answer beside them: {:?}", begun.elapsed());
    std::thread::sleep(Duration::from_secs(5));
    victim.survived("128 deaf clients of answers of 2 and 4 MB");
    drop(deaf);
    let answers = at_once(4, 4, |_| victim.pair.ask("GET", "/1.0/config/user.lines"));
    let whole = "\u{e4}\n".repeat(PASSED / 3);
    let got: Vec<_> = answers.iter().map(|answer| (answer.0, answer.1.len())).collect();
    assert!(answers.iter().all(|answer| answer.0 == 200 && answer.1 == whole), "{got:?}");
    let (status, text) = victim.pair.ask("GET", "/1.0/config/user.long");
    assert_eq!(status, 500);
    assert!(text.contains("answer is too long"), "{text}");
    assert!(!victim.pair.log().contains("answer is too long"), "{}", victim.pair.log());
    victim.survived("and four that read");
}
