//! Bursts of work: the agent refuses none, makes few full TLS handshakes, and its memory returns to
//! its former size.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::mpsc::channel;

use mote_tests::conform::prelude::*;

const AT_ONCE: usize = 24;
/// Time until nothing of a burst is left: operations are kept for 5 s.
const REST: Duration = Duration::from_secs(12);

/// Tolerance after a burst, kB: about a hundred objects outlive it, such as grown tables and
/// tickets for the next calls. Each may keep a group of up to 64 KiB allocated. While tables and
/// long buffers were in such groups too, 500 to 650 kB remained.
const LEFT: u64 = 320;

/// Returns the agent's anonymous memory, kB. Its program is not counted.
fn held(pair: &Pair) -> u64 {
    proc::memory(pair.agent.0.id(), "smaps_rollup", "Anonymous:")
}

fn descriptors(pair: &Pair) -> usize {
    fs::read_dir(format!("/proc/{}/fd", pair.agent.0.id())).unwrap().count()
}

fn at_once(work: impl Fn(usize) + Sync) {
    thread::scope(|threads| {
        for number in 0..AT_ONCE {
            threads.spawn({
                let work = &work;
                move || work(number)
            });
        }
    });
}

fn sftp(pair: &Pair) {
    let host = tool("MOTE_HOST", "target/debug/mote-host");
    let host = format!("{} --dir {} sftp {NAME}", host.display(), pair.host.directory.display());
    let mut client = Command::new("sftp");
    client.args(["-q", "-b", "-", "-D", &host]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut client = bounded(client.stderr(Stdio::null())).unwrap();
    let lines = "ls -l /etc\nget /bin/busybox /dev/null\n";
    Write::write_all(&mut client.stdin.take().unwrap(), lines.as_bytes()).unwrap();
    client.wait().unwrap();
}

fn bursts(pair: &Pair, agent: &Client) {
    at_once(|_| assert_eq!(pair.ask("GET", "/1.0/config/user.foo").0, 200));
    at_once(|_| assert_eq!(pair.ask("GET", "/1.0").0, 200));
    at_once(|number| {
        let done = run(agent, &plain(&["echo", "hi"]), b"").unwrap();
        assert_eq!((done.code, &*done.out), (0, "hi\n"), "{number}");
    });
    at_once(|_| {
        let head = plain(&["head", "-c", "2000000", "/dev/zero"]);
        assert_eq!(run(agent, &head, b"").unwrap().out.len(), 2_000_000);
    });
    at_once(|_| assert!(agent.get("/1.0/state").unwrap()["processes"].as_u64() > Some(0)));
    at_once(|_| assert_eq!(agent.ask("GET", "/1.0/metrics", "").unwrap().status, 200));
    at_once(|_| sftp(pair));
    at_once(|number| {
        let mut events = Ws::open(agent, "/1.0/events").unwrap();
        let key = "x".repeat(20_000);
        let event =
            format!(r#"{{"type":"config","metadata":{{"key":"user.{number}","value":"{key}"}}}}"#);
        assert_eq!(agent.ask("POST", "/1.0/events", &event).unwrap().status, 200);
        let _message = events.message().unwrap();
    });
    agent.forget();
}

fn comes_back(flavour: &str) {
    let pair = Pair::start(flavour, &["user.foo=bar"]);
    let agent = pair.client();
    thread::sleep(Duration::from_secs(2));
    let (idle, before) = (held(&pair), descriptors(&pair));
    let mut resting = Vec::new();
    for _ in 0..4 {
        bursts(&pair, &agent);
        thread::sleep(REST);
        resting.push(held(&pair));
    }
    assert_eq!(descriptors(&pair), before, "{flavour}");
    println!("{flavour}: idle {idle} kB, after bursts {resting:?}");
    // The heap's fragmentation depends on the order in which calls end: the smallest value counts.
    assert!(resting.iter().min() <= Some(&(idle + LEFT)), "{idle} grew to {resting:?} kB");
    // Memory must not grow with each burst. Only the first one fills tables and the heap's groups.
    assert!(resting[3] <= resting[1] + LEFT / 2, "{resting:?}");
}

#[test]
fn returns_to_its_idle_memory() {
    ["lxd", "incus"].into_iter().for_each(comes_back);
}

const CALLS: u64 = 300;
/// Limit for the page faults of a call, which reuses the pages of the previous one.
const FAULTS_PER_CALL: f64 = 3.0;

#[test]
fn a_call_reuses_the_pages_of_the_previous_one() {
    let pair = Pair::start("lxd", &["user.foo=bar"]);
    let calls = |count| {
        for _ in 0..count {
            assert_eq!(pair.ask("GET", "/1.0/config/user.foo").0, 200);
        }
    };
    calls(50);
    let resumed = || pair.host.state()["resumed"].as_u64().unwrap();
    let (before, resumed_before) = (proc::page_faults(pair.agent.0.id()), resumed());
    calls(CALLS);
    // The core's tests (`tls/tickets`) cover bursts, where calls wait for each other's tickets.
    assert_eq!(resumed() - resumed_before, CALLS);
    let faults = (proc::page_faults(pair.agent.0.id()) - before) as f64 / CALLS as f64;
    println!("{faults:.2} page faults a call");
    assert!(faults < FAULTS_PER_CALL, "{faults:.2} page faults a call: its memory is mapped again");
}

#[test]
fn keeps_connections_that_arrive_while_it_is_busy() {
    const GUESTS: usize = 300;
    let pair = Pair::start("lxd", &[]);
    kill(Signal::STOP, pair.agent.0.id());
    // A client must block, because a full queue returns EAGAIN to one that does not.
    let (sender, came) = channel();
    thread::scope(|threads| {
        // The guests send immediately, because the agent evicts silent connections.
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
