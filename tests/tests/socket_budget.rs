//! The memory that peers can make the agent use is limited: attacks in a memory cgroup of 8 MiB, if
//! this machine allows one.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use mote_tests::attack::{Attack, Cgroup, Kind};
use mote_tests::conform::prelude::*;

const PEAK: u64 = 6 * 1024;
/// A size just below the maximum of an event.
const MEGABYTE: usize = 1_000_000;
const LIMIT: Duration = Duration::from_secs(60);

/// An agent under attack. The fields' order matters: the cgroup must be empty when it is dropped.
struct Victim {
    pair: Pair,
    host: Client,
    cgroup: Cgroup,
}

impl Victim {
    fn start() -> Self {
        let (pair, cgroup) = Cgroup::with_agent();
        let host = pair.client();
        assert_eq!(run(&host, &plain(&["true"]), b"").unwrap().code, 0);
        Self::forget_peak(&pair);
        Self { pair, host, cgroup }
    }

    fn forget_peak(pair: &Pair) {
        fs::write(format!("/proc/{}/clear_refs", pair.agent.0.id()), "5").unwrap();
    }

    /// Checks that the agent runs, serves both sides and stayed within the limit.
    fn survived(&mut self, attack: &str) {
        self.host.forget();
        assert_eq!(run(&self.host, &plain(&["echo", "hi"]), b"").unwrap().out, "hi\n", "{attack}");
        assert_eq!(self.pair.ask("GET", "/1.0/config/user.foo").1, "bar", "{attack}");
        self.cgroup.survived(&mut self.pair, attack, PEAK);
    }
}

fn at_once<T: Send>(threads_of: usize, count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let work = &work;
    thread::scope(|threads| {
        let some = |first| (first..count).step_by(threads_of).map(work).collect::<Vec<_>>();
        let start = |first| threads.spawn(move || some(first));
        let all: Vec<_> = (0..threads_of).map(start).collect();
        all.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// Clients that do not read: a former maximum number of simultaneous answers.
const DEAF: usize = 128;
const LONG: usize = 4_000_000;
/// Size of a long value, in bytes; 1.9 MB with its escapes.
const PASSED: usize = 1_400_000;

fn give_values(victim: &mut Victim) {
    let host = &mut victim.pair.host;
    host.kill();
    let path = host.directory.join("instances").join(NAME).join("instance.json");
    let mut instance: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    instance["config"]["user.long"] = "x".repeat(LONG).into();
    instance["config"]["user.lines"] = "\u{e4}\n".repeat(PASSED / 3).into();
    fs::write(&path, instance.to_string()).unwrap();
    host.start();
    // The host's address may have changed.
    victim.host.announce();
    let asked = || victim.pair.ask("GET", "/1.0/config/user.foo").1;
    until("the host", LIMIT, || asked() == "bar");
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
    let deaf: Vec<_> = (0..DEAF)
        .map(|number| ask(&victim, if number % 8 == 0 { "user.long" } else { "user.lines" }))
        .collect();
    // A new client waits until the host has begun those answers, but not until they are read.
    let asked = || victim.pair.ask("GET", "/1.0/config/user.foo").1;
    until("a short answer", LIMIT, || asked() == "bar");
    thread::sleep(Duration::from_secs(5));
    victim.survived("128 deaf clients of answers of 2 and 4 MB");
    drop(deaf);
    // The agent has noticed their ends.
    until("a long answer", LIMIT, || victim.pair.ask("GET", "/1.0/config/user.lines").0 == 200);
    let answers = at_once(4, 4, |_| victim.pair.ask("GET", "/1.0/config/user.lines"));
    let whole = "\u{e4}\n".repeat(PASSED / 3);
    let got: Vec<_> = answers.iter().map(|answer| (answer.0, answer.1.len())).collect();
    assert!(answers.iter().all(|answer| answer.0 == 200 && answer.1 == whole), "{got:?}");
    let long = victim.pair.ask("GET", "/1.0/config/user.long");
    exits(long, 500, &["answer is too long"]);
    assert!(!victim.pair.log().contains("answer is too long"), "{}", victim.pair.log());
    victim.survived("and four that read");
}

/// A former maximum number of simultaneous long commands.
const COMMANDS: usize = 196;

fn post_command(victim: &Victim, body: &str) -> u16 {
    let answer = victim
        .host
        .connect()
        .and_then(|mut wire| wire.within(LIMIT).ask("POST", "/1.0/exec", "", body.as_bytes()));
    // The agent may close a refused connection before the client has read the reason. 408: on a
    // busy machine the client sends too slowly.
    answer.map_or(0, |answer| answer.status)
}

#[test]
fn two_hundred_commands_of_0_9_mb_and_a_list_of_them() {
    let mut victim = Victim::start();
    let words = vec!["x".repeat(100_000); 9];
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let variables: serde_json::Map<_, _> =
        (0..9).map(|number| (format!("V{number}"), "x".repeat(100_000).into())).collect();
    let bodies = [
        plain(&words).to_string(),
        with(plain(&["true"]), json!({ "environment": variables })).to_string(),
    ];
    let mut done = Vec::new();
    for body in &bodies {
        done.extend(at_once(8, COMMANDS / 2, |_| post_command(&victim, body)));
        let listed = victim.host.ask("GET", "/1.0/operations?recursion=1", "").unwrap();
        assert!([200, 503].contains(&listed.status), "{}", listed.short());
    }
    assert!(done.contains(&202), "{done:?}");
    assert!(done.iter().all(|status| [0, 202, 408, 503].contains(status)), "{done:?}");
    let taken = done.iter().filter(|status| **status == 202).count();
    victim.survived(&format!("196 commands of 0.9 MB, of which {taken} were taken, and a list"));
}

fn half(victim: &Victim, target: &str, length: usize) -> Wire {
    let mut wire = victim.host.connect().unwrap();
    let head = format!("POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
    wire.send(head.as_bytes()).unwrap();
    let _cut = wire.within(Duration::from_millis(200)).send(&vec![b' '; length / 2]);
    wire
}

#[test]
fn incomplete_requests_of_the_host() {
    let mut victim = Victim::start();
    // Each of these requests is a TLS connection with a received record.
    let events = at_once(8, 8, |_| half(&victim, "/1.0/events", MEGABYTE));
    let commands = at_once(8, 8, |_| half(&victim, "/1.0/exec", 2 * MEGABYTE));
    let short = at_once(8, 8, |_| half(&victim, "/1.0/events", 60_000));
    // By then the agent has refused the requests that waited for memory.
    thread::sleep(Duration::from_secs(12));
    victim.survived("24 half-sent requests of 2 MB, 1 MB and 60 kB");
    drop((events, commands, short));
}

/// Connections of an attack; 4096 is the former limit of concurrent handshakes.
const CALLERS: [usize; 2] = [500, 4096];

/// The agent's time limit for a handshake.
const HANDSHAKE: Duration = Duration::from_secs(3);

/// Returns the beginning of a ClientHello that is longer than the agent accepts, in the longest
/// records.
fn endless_hello() -> Vec<u8> {
    let mut hello = vec![0; 60_000];
    hello[..4].copy_from_slice(&[1, 0, 0xff, 0xff]);
    hello.chunks(1 << 14).fold(Vec::new(), |sent, part| {
        let length = u16::try_from(part.len()).unwrap().to_be_bytes();
        [&sent, &[22, 3, 1][..], &length, part].concat()
    })
}

/// `MOTE_SAMPLES=100` prints the figures of docs/explanation/security.md.
#[test]
fn callers_without_an_end_of_their_handshake() {
    let samples = std::env::var("MOTE_SAMPLES").map_or(3, |samples| samples.parse().unwrap());
    for (what, first) in [
        ("nothing", Some(Vec::new())),
        ("half a ClientHello of 64 kB", Some(endless_hello())),
        ("no TLS", Some(b"GET / HTTP/1.1\r\n\r\n".to_vec())),
        ("a ClientHello", None),
    ] {
        let mut victim = Victim::start();
        let first = first.unwrap_or_else(|| {
            let mut hello = Vec::new();
            victim.host.begin(Caller::Nobody).unwrap().write_tls(&mut hello).unwrap();
            hello
        });
        let socket = victim.pair.scratch.0.join("vs.listen_8443");
        // Each ClientHello costs the agent milliseconds.
        let counts = if what == "a ClientHello" { 1 } else { 2 };
        for count in CALLERS.into_iter().take(counts) {
            let first = [first.clone(), first.clone()];
            let attack = Attack::sending(first, &socket, Kind::Silent, count, 0);
            until("the attack", LIMIT, || attack.opened() >= count);
            let mut took: Vec<_> = std::iter::repeat_with(|| {
                // A host that is delayed by this machine may be disconnected, and tries again.
                let called = || {
                    let mut wire = victim.host.connect().ok()?;
                    wire.ask("GET", "/1.0", "", b"").ok().filter(|answer| answer.status == 200)
                };
                wait("the host's call", LIMIT, called).1
            })
            .take(samples)
            .collect();
            took.sort();
            let (half, most) = (took[samples / 2], took[samples - 1 - samples / 100]);
            println!("{count} callers, {what}: the host waits {half:.1?} / {most:.1?}");
            // If no caller were closed early, the host would wait for several such limits.
            assert!(count > CALLERS[0] || in_time(half, HANDSHAKE), "{what}: {half:?}");
        }
        victim.survived(&format!("callers that send {what}"));
    }
}

/// A former maximum number of listeners.
const LISTENERS: usize = 1024;

fn event(number: usize) -> String {
    let value = "x".repeat(MEGABYTE);
    format!(r#"{{"type":"config","metadata":{{"key":"user.{number}","value":"{value}"}}}}"#)
}

/// Posts events. If `heard` is given, waits until the listener has each event: the agent rightly
/// drops a listener that lags a whole event behind for a second, as on a busy machine.
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
    let deaf = victim.pair.listen().unwrap();
    let good = victim.pair.listen().unwrap();
    let (tell, heard) = mpsc::channel();
    thread::spawn(move || {
        for (number, event) in BufReader::with_capacity(1 << 16, good).split(b'\n').enumerate() {
            assert!(event.unwrap().len() > MEGABYTE);
            if tell.send(number).is_err() {
                break;
            }
        }
    });
    post(&victim, 500, Some(&heard));
    victim.survived("a deaf listener in the guest and 500 events of 1 MB");
    assert!(victim.pair.log().contains("a slow event listener"), "{}", victim.pair.log());
    drop(deaf);
}

#[test]
fn drops_a_stalled_host_listener_without_loss_for_others() {
    let mut victim = Victim::start();
    let deaf = [Ws::open(&victim.host, "/1.0/events").unwrap()];
    let deaf_lines = victim.host.listen().unwrap();
    let mut good = Ws::open(&victim.host, "/1.0/events").unwrap();
    let (tell, heard) = mpsc::channel();
    thread::spawn(move || {
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
    let deaf = taken((0..LISTENERS).map(|_| victim.pair.listen()).collect());
    post(&victim, 5, None);
    victim.survived(&format!("{} deaf listeners in the guest and 5 events of 1 MB", deaf.len()));
}

#[test]
fn a_hundred_stalled_host_listeners_share_one_copy() {
    let mut victim = Victim::start();
    let deaf = taken(at_once(32, 100, |_| victim.host.listen()));
    post(&victim, 5, None);
    victim.survived(&format!("{} deaf listeners of the host and 5 events of 1 MB", deaf.len()));
}

/// Returns the accepted connections. The agent must have refused all others with 503.
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
