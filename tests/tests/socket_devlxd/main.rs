//! devlxd on real sockets: requests of guests, invalid requests, and faults of the host.

use mote_tests::agent::{head, split};
use mote_tests::attack::more_descriptors;
use mote_tests::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

mod floods;
mod life;

fn lxd() -> Pair {
    Pair::start(
        "lxd",
        &[
            "user.foo=bar",
            "user.quoted=a \"b\"\n\u{1f600}",
            "cloud-init.user-data=#cloud-config\n",
            "security.devlxd.images=true",
            "mote.image.size=209715200",
            "security.devlxd.management.volumes=true",
            "mote.bearer=secret",
            "ubuntu_pro.guest_attach=on",
        ],
    )
}

/// Sends `GET` on a kept connection. Returns the head and the body.
fn call(client: &mut BufReader<UnixStream>, target: &str) -> (String, String) {
    let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n");
    client.get_mut().write_all(request.as_bytes()).expect("a request");
    let head = head(client);
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; length.expect("a length").parse().expect("a number")];
    client.read_exact(&mut body).expect("a body");
    (head, String::from_utf8(body).expect("text"))
}

/// The core's tests cover each route (`devlxd/forward`, `devlxd/exchange`).
#[test]
fn token_operations_and_conditions_pass_through() {
    let pair = lxd();
    let token = "Authorization: Bearer secret\r\n";
    let volumes = "/1.0/storage-pools/p/volumes/custom";
    assert_eq!(pair.ask("GET", volumes), (403, "You must be authenticated\n".into()));
    let waiting = "/1.0/operations/x/wait?timeout=3";
    // mote-host answers with the request as it arrived.
    for (method, path, query, sent, arrived) in [
        ("GET", volumes, "?recursion=1", "", Value::Null),
        // The host refuses a volume without a type, which comes from the path.
        ("POST", volumes, "", r#"{"name":"v"}"#, json!({"name": "v", "type": "custom"})),
        ("GET", waiting, "", "", Value::Null),
    ] {
        let (status, seen) = pair.ask_with(method, path, token, sent);
        assert_eq!(status, 200, "{method} {path}: {seen}");
        let expected =
            json!({"method": method, "target": format!("{path}{query}"), "body": arrived});
        assert_eq!(serde_json::from_str::<Value>(&seen).unwrap(), expected);
    }
    let instance = format!("/1.0/instances/{NAME}");
    let stale = format!("{token}If-Match: \"stale\"\r\n");
    assert_eq!(pair.ask_with("PATCH", &instance, &stale, "{\"devices\":{}}").0, 412);
}

#[test]
fn passes_images_on_in_constant_memory() {
    let pair = lxd();
    let before = pair.memory("VmHWM:");
    let mut stream = pair.connect();
    stream
        .write_all(b"GET /1.0/images/ab/export HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut reader = BufReader::new(stream);
    head(&mut reader);
    assert_eq!(io::copy(&mut reader, &mut io::sink()).unwrap(), 200 * 1024 * 1024);
    let grown = pair.memory("VmHWM:") - before;
    assert!(grown < 1024, "grew by {grown} kB");
}

#[test]
fn config_prints_keys_of_any_name() {
    let config = ["user.%2F%=p", "user.?#=q", "user.a b=s", "user.empty=", "user.e\u{e9}=u"];
    let config = [&config[..], &["user.k8s.io/role=cp", "user.last=z"]].concat();
    for flavour in ["lxd", "lxd-5.0", "incus"] {
        let pair = Pair::start(flavour, &config);
        let mut command = agent::command(&pair.scratch.0, flavour, &pair.host.share);
        let output = command.arg("config").stdout(Stdio::piped()).stderr(Stdio::piped()).output();
        let output = output.unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let lines = config.iter().map(|pair| pair.replacen('=', ": ", 1) + "\n");
        assert_eq!(printed, lines.collect::<String>(), "{flavour}");
        assert_eq!(output.status.code(), Some(0));
    }
}

// Eviction of idle connections: a new client is answered immediately, however many others exist.

/// Number of connections: more than the agent's limit, and as many as fit in the kernel's queue.
const MANY: usize = 4000;

const GET: &[u8] = b"GET /1.0/config/user.foo HTTP/1.1\r\nHost: x\r\n\r\n";

fn pair() -> Pair {
    more_descriptors();
    let big = format!("user.big={}", "x".repeat(120_000));
    Pair::start("lxd", &["user.foo=bar", &big])
}

fn said(pair: &Pair, bytes: &[u8]) -> UnixStream {
    let mut stream = pair.connect();
    stream.write_all(bytes).expect("room for it");
    stream
}

/// Sends a request in two pieces. Returns whether it was answered: kept connections may be closed.
fn asked(stream: &mut UnixStream, asked_before: u32) -> bool {
    let (first, second) = GET.split_at(20);
    let sent = stream.write_all(first).and_then(|()| stream.write_all(second));
    let mut answer = [0; 512];
    let count = sent.and_then(|()| stream.read(&mut answer)).unwrap_or(0);
    if count == 0 {
        assert!(asked_before > 0, "a new client is dropped");
        return false;
    }
    let answer = String::from_utf8_lossy(&answer[..count]);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nbar"), "{answer}");
    true
}

#[test]
fn active_clients_lose_nothing_next_to_idle_ones() {
    let pair = pair();
    let done = AtomicBool::new(false);
    let active = || {
        let mut answers = 0;
        while !done.load(Ordering::Relaxed) {
            let mut stream = pair.connect();
            // A kept connection may be closed: a client not scheduled for 50 ms counts as idle.
            answers += (0..3).take_while(|before| asked(&mut stream, *before)).count();
        }
        answers
    };
    thread::scope(|threads| {
        let active: Vec<_> = (0..4).map(|_| threads.spawn(active)).collect();
        let mut resting = Vec::new();
        for number in 0..MANY {
            let words: &[u8] = match number % 4 {
                0 => b"",
                1 => b"GET / HT",
                2 => b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                _ => b"PATCH /1.0 HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n{",
            };
            resting.push(said(&pair, words));
        }
        thread::sleep(Duration::from_millis(500));
        done.store(true, Ordering::Relaxed);
        for thread in active {
            let answers = thread.join().unwrap();
            println!("{answers} answers");
            assert!(answers > 0);
        }
    });
}

#[test]
fn closes_a_client_that_does_not_disconnect() {
    let pair = pair();
    let mut stream = said(&pair, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(stream.read(&mut [0; 512]).unwrap() > 0);
    // The agent closes the connection, instead of only shutting down its side.
    let mut look = [PollFd::new(&stream, PollFlags::empty())];
    let _closed = poll(&mut look, Some(&Timespec { tv_sec: 60, tv_nsec: 0 }));
    assert!(look[0].revents().contains(PollFlags::HUP));
}

#[test]
fn any_fault_of_the_host_is_a_500_in_time() {
    let mut pair = lxd();
    for (kind, number) in
        [("reset", "0"), ("garbage", "0"), ("wrong-cert", "0"), ("huge", "0"), ("stall", "9999")]
    {
        pair.host.ok(&["fault", NAME, kind, number]);
        let (status, text) = pair.ask("GET", "/1.0/config/user.foo");
        assert_eq!(status, 500, "{kind}: {text}");
        assert!(text.starts_with("Failed connecting to devLXD over vsock: "), "{kind}: {text}");
        pair.host.ok(&["fault", NAME, "none"]);
        assert_eq!(pair.ask("GET", "/1.0/config/user.foo").1, "bar", "after {kind}");
    }
    pair.host.ok(&["fault", NAME, "forbidden"]);
    assert_eq!(pair.ask("GET", "/1.0/config/user.foo"), (403, "Forbidden\n".into()));
    pair.host.kill();
    assert_eq!(pair.ask("GET", "/1.0/config/user.foo").0, 500);
    pair.assert_alive();
}

#[test]
fn frees_the_quota_of_a_client_that_stops_waiting() {
    let pair = lxd();
    let files =
        || fs::read_dir(format!("/proc/{}/fd", pair.agent.0.id())).expect("an agent").count();
    pair.host.ok(&["fault", NAME, "slow", "60000"]);
    let before = files();
    let mut waiting: Vec<_> = (0..10).map(|_| pair.connect()).collect();
    for stream in &mut waiting {
        stream.write_all(b"GET /1.0/operations/x/wait HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    }
    // A client that has shut down its side still waits for the answer.
    waiting[0].shutdown(Shutdown::Write).unwrap();
    let limit = Duration::from_secs(10);
    until("ten calls", limit, || files() == before + 20);
    waiting.truncate(1);
    until("nine of them to be over", limit, || files() == before + 2);
    waiting[0].set_nonblocking(true).unwrap();
    assert_eq!(waiting[0].read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn reports_missing_descriptors_and_keeps_its_host() {
    let pair = lxd();
    let mut client = BufReader::new(pair.connect());
    let mut ask = || {
        let (head, body) = call(&mut client, "/1.0/config/user.foo");
        (split(&head).0, body)
    };
    assert_eq!(ask(), (200, "bar".into()));
    let entered = || pair.log().matches(": STARTED").count();
    let before = entered();
    pair.limit_descriptors(true);
    for _ in 0..3 {
        exits(ask(), 500, &["this agent cannot call the host now"]);
    }
    pair.limit_descriptors(false);
    assert_eq!(ask(), (200, "bar".into()));
    let log = pair.log();
    assert!(!log.contains("lost host"), "{log}");
    assert_eq!(entered(), before, "{log}");
    // The agent logs this at most once in ten seconds.
    assert!(log.matches("cannot call the host now").count() <= 2, "{log}");
}
