//! The agent on real sockets: what guests ask, what they get wrong, what the host gets wrong.

use std::io::{BufRead, BufReader, Read, Write};
use std::time::{Duration, Instant};

use mote_tests::agent::{Pair, launch, launch_with, split};
use mote_tests::host::NAME;
use mote_tests::wait;

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

#[test]
fn every_endpoint_answers_in_its_format() {
    let pair = lxd();
    assert_eq!(pair.ask("GET", "/"), (200, "[\"/1.0\"]\n".into()));
    let (status, info) = pair.ask("GET", "/1.0");
    assert!(status == 200 && info.contains("\"state\":\"Started\""), "{info}");
    assert!(!info.contains("environment"), "{info}");
    let (_, trusted) = pair.ask_with("GET", "/1.0", "Authorization: Bearer secret\r\n", "");
    assert!(trusted.contains("environment"), "{trusted}");
    let keys = "[\"/1.0/config/cloud-init.user-data\",\"/1.0/config/user.foo\",\
                \"/1.0/config/user.quoted\"]\n";
    assert_eq!(pair.ask("GET", "/1.0/config"), (200, keys.into()));
    assert_eq!(pair.ask("GET", "/1.0/config/user.foo"), (200, "bar".into()));
    assert_eq!(pair.ask("GET", "/1.0/config/%75ser.foo"), (200, "bar".into()));
    assert_eq!(pair.ask("GET", "/1.0/config/user.quoted").1, "a \"b\"\n\u{1f600}");
    assert_eq!(pair.ask("GET", "/1.0/config/user.nope"), (404, "Not Found\n".into()));
    assert_eq!(pair.ask("GET", "/1.0/config/volatile.uuid"), (403, "Forbidden\n".into()));
    let meta = "instance-id: vm1-0001\nlocal-hostname: vm1\n";
    assert_eq!(pair.ask("GET", "/1.0/meta-data"), (200, meta.into()));
    assert_eq!(pair.ask("GET", "/1.0/devices"), (200, "{}\n".into()));
    assert_eq!(pair.ask("GET", "/1.0/ubuntu-pro"), (200, "{\"guest_attach\":\"on\"}\n".into()));
    assert!(pair.ask("POST", "/1.0/ubuntu-pro/token").1.contains("guest_token"));
    assert_eq!(pair.ask("GET", "/1.0/nope"), (200, "[\"/1.0\"]\n".into()));
    assert_eq!(pair.ask("POST", "/1.0/config").0, 501);
    assert_eq!(pair.ask("BREW", "/1.0/config").0, 404);
    assert_eq!(pair.ask("GET", "/1.0/config/%zz").0, 400);
}

#[test]
fn storage_instances_and_operations_need_a_token_and_pass_through() {
    let pair = lxd();
    let token = "Authorization: Bearer secret\r\n";
    let volumes = "/1.0/storage-pools/p/volumes/custom";
    let refused = (403, "You must be authenticated\n".into());
    assert_eq!(pair.ask("GET", volumes), refused);
    assert_eq!(pair.ask_with("GET", volumes, token, ""), (200, "[]\n".into()));
    let (status, operation) = pair.ask_with("POST", volumes, token, "{\"name\":\"v\"}");
    assert!(status == 200 && operation.contains("status_code"), "{operation}");
    // The type came from the path.
    let volume = format!("{volumes}/v");
    let (_, shown) = pair.ask_with("GET", &volume, token, "");
    assert_eq!(shown, "{\"name\":\"v\",\"type\":\"custom\"}\n");
    assert_eq!(pair.ask_with("PATCH", &volume, token, "{\"description\":\"d\"}").0, 200);
    let snapshots = format!("{volume}/snapshots");
    assert_eq!(pair.ask_with("POST", &snapshots, token, "{\"name\":\"s\"}").0, 200);
    assert!(pair.ask_with("GET", &snapshots, token, "").1.contains("\"name\":\"s\""));
    assert_eq!(pair.ask_with("DELETE", &format!("{snapshots}/s"), token, "").0, 200);
    assert_eq!(pair.ask_with("DELETE", &volume, token, "").0, 200);
    assert_eq!(pair.ask_with("GET", &volume, token, "").0, 404);
    let operation: serde_json::Value = serde_json::from_str(&operation).unwrap();
    let waited = format!("/1.0/operations/{}/wait?timeout=3", operation["id"].as_str().unwrap());
    assert_eq!(pair.ask_with("GET", &waited, token, "").0, 200);
    assert_eq!(pair.ask_with("GET", "/1.0/operations/x/wait?timeout=3", token, "").0, 404);
    let bad = pair.ask_with("GET", "/1.0/operations/x/wait?timeout=a", token, "");
    assert_eq!(bad, (400, "Invalid timeout value\n".into()));
    let whole = pair.talk(
        format!("GET /1.0/instances/{NAME} HTTP/1.1\r\nConnection: close\r\n{token}\r\n")
            .as_bytes(),
    );
    let etag = whole.lines().find_map(|line| line.strip_prefix("ETag: ")).expect("an ETag");
    let change = "{\"devices\":{\"d\":{\"type\":\"disk\"}}}";
    let instance = format!("/1.0/instances/{NAME}");
    let stale = format!("{token}If-Match: \"stale\"\r\n");
    assert_eq!(pair.ask_with("PATCH", &instance, &stale, change).0, 412);
    let fresh = format!("{token}If-Match: {etag}\r\n");
    assert_eq!(pair.ask_with("PATCH", &instance, &fresh, change).0, 200);
    assert!(pair.ask("GET", "/1.0/devices").1.contains("disk"));
}

#[test]
fn keep_alive_pipelining_chunks_expect_and_head_work() {
    let pair = lxd();
    let both = "GET /1.0/config/user.foo HTTP/1.1\r\n\r\n\
                PATCH /1.0 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\
                11\r\n{\"state\":\"Ready\"}\r\n0\r\n\r\n\
                HEAD /1.0/config/user.foo HTTP/1.1\r\nConnection: close\r\n\r\n";
    let answer = pair.talk(both.as_bytes());
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 3, "{answer}");
    assert!(answer.contains("\r\n\r\nbarHTTP/1.1"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n"), "HEAD has no body: {answer}");
    assert_eq!(pair.host.state()["status"], "Ready");
    let mut stream = pair.connect();
    let head = b"PATCH /1.0 HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 19\r\n\r\n";
    stream.write_all(head).unwrap();
    let mut buffer = [0; 100];
    let count = stream.read(&mut buffer).unwrap();
    assert_eq!(&buffer[..count], b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"{\"state\":\"Started\"}").unwrap();
    let count = stream.read(&mut buffer).unwrap();
    assert!(buffer[..count].starts_with(b"HTTP/1.1 200"));
    assert_eq!(pair.host.state()["status"], "Running");
}

#[test]
fn bad_requests_get_a_clear_error_and_the_agent_lives() {
    let mut pair = lxd();
    let long = "x".repeat(20_000);
    for (bytes, status) in [
        ("\u{16}\u{3}\u{1} not http\r\n\r\n".to_owned(), 400),
        (format!("GET /{long} HTTP/1.1\r\n\r\n"), 431),
        (format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(60)), 431),
        ("PUT / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n".into(), 400),
        (
            format!("PATCH /1.0 HTTP/1.1\r\nContent-Length: 100000\r\n\r\n{}", "x".repeat(100_000)),
            413,
        ),
        ("PATCH /1.0 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".into(), 400),
        ("PATCH /1.0 HTTP/1.1\r\nContent-Length: 3\r\n\r\n{x}".into(), 400),
        ("PATCH /1.0 HTTP/1.1\r\nContent-Length: 15\r\n\r\n{\"state\":\"Odd\"}".into(), 400),
        ("GET / HTTP/3.0\r\n\r\n".into(), 505),
        ("GET / HTTP/1.1".into(), 0),
    ] {
        let answer = pair.talk(bytes.as_bytes());
        assert_eq!(split(&answer).0, status, "{} -> {answer}", &bytes[..bytes.len().min(60)]);
    }
    pair.assert_alive();
}

#[test]
fn a_slow_client_is_cut_off_and_delays_nobody() {
    let mut pair = lxd();
    let mut slow: Vec<_> = (0..100).map(|_| pair.connect()).collect();
    for stream in &mut slow {
        stream.write_all(b"GET / HT").unwrap();
    }
    let begun = Instant::now();
    assert_eq!(pair.ask("GET", "/1.0/config/user.foo").0, 200);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let mut answer = String::new();
    slow[0].read_to_string(&mut answer).unwrap();
    assert_eq!(split(&answer).0, 408, "{answer}");
    drop(slow);
    pair.assert_alive();
}

#[test]
fn the_next_client_waits_when_all_places_are_taken() {
    let pair = lxd();
    let idle: Vec<_> = (0..140).map(|_| pair.connect()).collect();
    let begun = Instant::now();
    // Those who say nothing lose their place after 3 s.
    assert_eq!(pair.ask("GET", "/").0, 200);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    drop(idle);
}

#[test]
fn an_image_of_any_size_passes_in_constant_memory() {
    let pair = lxd();
    let before = pair.memory("VmHWM:");
    let mut stream = pair.connect();
    stream.write_all(b"GET /1.0/images/ab/export HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).unwrap();
    }
    let copied = std::io::copy(&mut reader, &mut std::io::sink()).unwrap();
    assert_eq!(copied, 200 * 1024 * 1024);
    let grown = pair.memory("VmHWM:") - before;
    assert!(grown < 1024, "grew by {grown} kB");
}

#[test]
fn events_reach_streams_and_websockets_until_they_leave() {
    let pair = lxd();
    let mut plain = pair.connect();
    plain.write_all(b"GET /1.0/events?type=config HTTP/1.1\r\n\r\n").unwrap();
    let mut socket = pair.connect();
    socket
        .write_all(
            b"GET /1.0/events HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
              Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        )
        .unwrap();
    let mut reader = BufReader::new(plain);
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).unwrap();
    }
    let mut frames = BufReader::new(socket);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        frames.read_line(&mut head).unwrap();
    }
    // The example of RFC 6455 §1.3.
    assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
    let mut ping = [0; 2];
    frames.read_exact(&mut ping).unwrap();
    assert_eq!(ping, [0x89, 0], "a ping comes first");
    for kind in ["device", "config"] {
        let event = format!("{{\"type\":\"{kind}\",\"metadata\":{{\"key\":\"user.a\"}}}}");
        pair.host.ok(&["query", NAME, "POST", "/1.0/events", &event]);
    }
    line.clear();
    reader.read_line(&mut line).unwrap();
    assert!(line.contains("\"type\":\"config\"") && line.contains("\"timestamp\":\""), "{line}");
    for kind in ["device", "config"] {
        let mut header = [0; 2];
        frames.read_exact(&mut header).unwrap();
        assert_eq!(header[0], 0x81);
        let mut text = vec![0; usize::from(header[1])];
        if header[1] == 126 {
            let mut length = [0; 2];
            frames.read_exact(&mut length).unwrap();
            text = vec![0; usize::from(u16::from_be_bytes(length))];
        }
        frames.read_exact(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains(&format!("\"type\":\"{kind}\"")), "{text}");
    }
    drop((reader, frames));
    assert_eq!(pair.ask("GET", "/1.0/config/user.foo").0, 200);
}

#[test]
fn whatever_the_host_does_wrong_is_a_500_in_bounded_time() {
    let mut pair = lxd();
    for (kind, number, limit) in [
        ("reset", "0", 2),
        ("garbage", "0", 2),
        ("wrong-cert", "0", 2),
        ("huge", "0", 15),
        ("stall", "20", 8),
    ] {
        pair.host.ok(&["fault", NAME, kind, number]);
        let begun = Instant::now();
        let (status, text) = pair.ask("GET", "/1.0/config/user.foo");
        let took = begun.elapsed();
        assert_eq!(status, 500, "{kind}: {text}");
        assert!(text.starts_with("Failed connecting to devLXD over vsock: "), "{kind}: {text}");
        assert!(took < Duration::from_secs(limit), "{kind}: {took:?}");
        pair.host.ok(&["fault", NAME, "none"]);
        assert_eq!(pair.ask("GET", "/1.0/config/user.foo").1, "bar", "after {kind}");
    }
    pair.host.ok(&["fault", NAME, "forbidden"]);
    assert_eq!(pair.ask("GET", "/1.0/config/user.foo"), (403, "Forbidden\n".into()));
    pair.host.kill();
    let begun = Instant::now();
    assert_eq!(pair.ask("GET", "/1.0/config/user.foo").0, 500);
    assert!(begun.elapsed() < Duration::from_secs(2));
    pair.assert_alive();
}

#[test]
fn the_host_switches_devlxd_off_and_on() {
    let pair = lxd();
    let conf = std::fs::read_to_string(pair.host.share.join("agent.conf")).unwrap();
    let off = conf.replace(",\"devlxd\":true", "").replace("\"devlxd\":true,", "");
    assert_ne!(off, conf);
    let socket = pair.socket();
    pair.host.ok(&["query", NAME, "PUT", "/1.0", &off]);
    wait("the socket to go", Duration::from_secs(2), || (!socket.exists()).then_some(()));
    pair.host.ok(&["query", NAME, "PUT", "/1.0", &conf]);
    wait("the socket", Duration::from_secs(2), || socket.exists().then_some(()));
    assert_eq!(pair.ask("GET", "/1.0/config/user.foo").1, "bar");
}

#[test]
fn a_stranger_gets_nothing_from_the_host_port() {
    let mut pair = lxd();
    let scratch = mote_tests::Scratch::new();
    let prefix = pair.scratch.0.join("vs").display().to_string();
    // Another host with certificates of its own, at the same agent.
    let args = ["--flavour", "lxd", "--vsock-plain", &prefix, "--qmp", "/nowhere"];
    let mut stranger = mote_tests::host::Host::new(&scratch.0, &args);
    std::fs::copy(pair.host.share.join("agent.crt"), stranger.share.join("agent.crt")).unwrap();
    stranger.start();
    for path in ["/", "/1.0"] {
        let why = stranger.try_run(&["query", NAME, "GET", path]).unwrap_err();
        assert!(why.contains("alert") || why.contains("AccessDenied"), "{why}");
    }
    let answer = pair.host.run(&["query", NAME, "GET", "/1.0"]);
    assert!(answer.contains("\"server\":\"lxd-agent\""), "{answer}");
    pair.assert_alive();
}

#[test]
fn the_host_api_answers_as_each_flavour_does() {
    for (flavour, unknown, server) in [("lxd", "200", "lxd-agent"), ("incus", "404", "incus-agent")]
    {
        let pair = Pair::start(flavour, &["user.foo=bar", "limits.cpu=1"]);
        let query = |method: &str, path: &str, body: &str| -> String {
            pair.host.run(&["query", NAME, method, path, body])
        };
        assert!(query("GET", "/1.0", "").contains(server));
        assert!(query("GET", "/1.0/nope", "").starts_with(unknown), "{flavour}");
        assert!(query("DELETE", "/1.0", "").starts_with("501"));
        assert!(query("PUT", "/1.0", "{").starts_with("400"));
        assert!(query("PUT", "/1.0", &"[".repeat(60_000)).starts_with("400"));
        assert!(query("POST", "/1.0/events", "{}").starts_with("400"));
        assert_eq!(pair.ask("GET", "/1.0/config"), (200, "[\"/1.0/config/user.foo\"]\n".into()));
        let meta = pair.ask("GET", "/1.0/meta-data").1;
        assert_eq!(meta.starts_with("#cloud-config"), flavour == "incus", "{meta}");
    }
}

#[test]
fn incus_guests_also_find_the_lxd_path() {
    let pair = Pair::start("incus", &["user.foo=bar"]);
    let link = pair.socket().parent().unwrap().with_file_name("lxd");
    assert_eq!(std::fs::read_link(link).unwrap().to_str(), Some("incus"));
    assert_eq!(pair.ask("GET", "/1.0/config/limits.cpu"), (403, "not authorized\n".into()));
    assert_eq!(pair.ask("GET", "/nope"), (404, "404 page not found\n".into()));
}

#[test]
fn unusable_files_are_named_and_a_second_agent_is_refused() {
    let pair = lxd();
    let mut second = launch(&pair.scratch.0, "lxd", &pair.host.share);
    let end = wait("the second agent", Duration::from_secs(5), || second.0.try_wait().unwrap()).0;
    assert_eq!(end.code(), Some(1));
    assert!(pair.log().contains("another mote-agent is running"));
    for (file, content, expected) in [
        ("agent.crt", "nonsense", "agent.crt: no PEM block of that kind"),
        (
            "agent.key",
            "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n",
            "agent.key",
        ),
        ("server.crt", "", "server.crt: no PEM block of that kind"),
    ] {
        let scratch = mote_tests::Scratch::new();
        let share = scratch.0.join("share");
        std::fs::create_dir(&share).unwrap();
        for name in ["agent.crt", "agent.key", "server.crt"] {
            std::fs::copy(pair.host.share.join(name), share.join(name)).unwrap();
        }
        // As root the mode does not matter; the copy is ours anyway.
        std::fs::remove_file(share.join(file)).unwrap();
        std::fs::write(share.join(file), content).unwrap();
        let mut agent = launch(&scratch.0, "lxd", &share);
        let end = wait("the agent", Duration::from_secs(5), || agent.0.try_wait().unwrap()).0;
        let log = std::fs::read_to_string(scratch.0.join("agent.log")).unwrap();
        assert_eq!(end.code(), Some(1), "{log}");
        assert!(log.contains(expected), "{log}");
    }
}

#[test]
fn a_second_call_costs_no_signature() {
    let pair = lxd();
    // The agent's own check is the first call, and makes the first ticket.
    wait("CONNECTED", Duration::from_secs(5), || pair.log().contains("CONNECTED").then_some(()));
    for _ in 0..20 {
        assert_eq!(pair.ask("GET", "/1.0/config/user.foo").0, 200);
    }
    let state = pair.host.state();
    let (all, resumed) = (state["connections"].as_u64(), state["resumed"].as_u64());
    assert_eq!(resumed, all.map(|all| all - 1), "{state}");
}

#[test]
fn the_service_manager_hears_ready_watchdog_and_stopping() {
    let mut pair = lxd();
    pair.agent.kill();
    let path = pair.scratch.0.join("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let socket = path.display().to_string();
    let environment = [("NOTIFY_SOCKET", socket.as_str()), ("WATCHDOG_USEC", "400000")];
    pair.agent = launch_with(&pair.scratch.0, "lxd", &pair.host.share, &environment);
    let hear = || {
        let mut buffer = [0; 100];
        let count = manager.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    };
    assert_eq!([hear(), hear(), hear()], ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]);
    // By then it listens: whoever waits for READY may ask.
    assert_eq!(pair.ask("GET", "/1.0/config/user.foo").1, "bar");
    let pid = pair.agent.0.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let mut last = hear();
    while last == "WATCHDOG=1" {
        last = hear();
    }
    assert_eq!(last, "STOPPING=1");
    let end = wait("the end", Duration::from_secs(5), || pair.agent.0.try_wait().unwrap()).0;
    assert_eq!(end.code(), Some(0), "{}", pair.log());
    assert!(pair.log().ends_with("STOPPED\n"), "{}", pair.log());
    assert!(!pair.socket().exists(), "a name that nobody listens at");
}

#[test]
fn an_agent_that_is_killed_and_started_again_still_knows_ready() {
    let mut pair = lxd();
    assert_eq!(pair.ask_with("PATCH", "/1.0", "", "{\"state\":\"Ready\"}").0, 200);
    pair.agent.kill();
    pair.host.kill();
    pair.host.start();
    assert_eq!(pair.host.state()["status"], "Running");
    pair.agent = launch(&pair.scratch.0, "lxd", &pair.host.share);
    wait("Ready", Duration::from_secs(5), || {
        (pair.host.state()["status"] == "Ready").then_some(())
    });
}

#[test]
fn nonsense_in_agent_conf_is_logged_and_the_host_may_still_call() {
    let mut pair = lxd();
    let path = pair.host.share.join("agent.conf");
    let good = std::fs::read_to_string(&path).unwrap();
    for bad in [&b"{\"cid\":2"[..], b"\xff\0", &[b'['; 50_000], b"", &[b' '; 70_000]] {
        pair.agent.kill();
        std::fs::write(&path, bad).unwrap();
        let before = pair.log().len();
        pair.agent = launch(&pair.scratch.0, "lxd", &pair.host.share);
        wait("the log", Duration::from_secs(5), || {
            pair.log()[before..].contains("agent.conf").then_some(())
        });
        wait("STARTED", Duration::from_secs(5), || {
            pair.log()[before..].contains("STARTED").then_some(())
        });
    }
    pair.host.ok(&["query", NAME, "PUT", "/1.0", &good]);
    // The file of the killed agent is still there; what counts is that somebody listens.
    let connect = || std::os::unix::net::UnixStream::connect(pair.socket()).ok();
    wait("devlxd", Duration::from_secs(5), connect);
    assert_eq!(pair.ask("GET", "/1.0/config/user.foo").1, "bar");
}

#[test]
fn two_daemons_keep_to_their_own_instances() {
    let (first, second) =
        (Pair::start("lxd", &["user.foo=1"]), Pair::start("incus", &["user.foo=2"]));
    assert_eq!(first.ask("GET", "/1.0/config/user.foo").1, "1");
    assert_eq!(second.ask("GET", "/1.0/config/user.foo").1, "2");
    assert_ne!(first.host.state()["port"], second.host.state()["port"]);
}
