//! `mote-agent connect`, with a file or pipe on one side and a listener of the test on the other.

use mote_tests::conform::prelude::*;

use super::start;

const LENGTH: usize = 1 << 20;

/// A listener at a unix socket, and the address of the socket for `connect`.
fn unix_target() -> (Scratch, UnixListener, String) {
    let scratch = Scratch::new();
    let path = scratch.0.join("sock");
    let target = format!("unix:{}", path.display());
    (scratch, UnixListener::bind(path).unwrap(), target)
}

#[test]
fn each_side_may_end_first() {
    let (scratch, unix, local) = unix_target();
    let input = scratch.0.join("input");
    let mut bytes = vec![0; LENGTH];
    Noise::default().fill(&mut bytes);
    put(&input, &bytes);
    let tcp = TcpListener::bind("[::1]:0").unwrap();
    let target = tcp.local_addr().unwrap().to_string();
    let from = |target: &str, input: Stdio| {
        let mut command = Command::new(agent());
        command.args(["connect", target]).stdin(input);
        bounded(command.stdout(Stdio::piped())).unwrap()
    };
    let run = |target: &str| from(target, File::open(&input).unwrap().into());
    // The target ends its side before it reads anything: the output ends, too.
    let mut child = run(&local);
    let (mut peer, mut sent, mut said) = (unix.accept().unwrap().0, Vec::new(), String::new());
    peer.write_all(b"first").unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    peer.read_to_end(&mut sent).unwrap();
    let status = child.wait().unwrap();
    assert!(sent == bytes && status.success() && said == "first", "{status} {said}");
    // The target sends only after the end of the input.
    let child = run(&target);
    let mut peer = tcp.accept().unwrap().0;
    sent.clear();
    peer.read_to_end(&mut sent).unwrap();
    peer.write_all(&sent).unwrap();
    drop(peer);
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success() && ended.stdout == bytes, "{:?}", ended.status);
    // The target answers without reading.
    let child = run(&local);
    unix.accept().unwrap().0.write_all(b"answer").unwrap();
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.code() == Some(1) && ended.stdout == b"answer", "{ended:?}");
    // The target closes, and the input neither ends nor continues.
    let mut child = from(&target, Stdio::piped());
    let _input = child.stdin.take();
    drop(tcp.accept().unwrap());
    assert!(child.wait().unwrap().success());
}

#[test]
fn input_reaches_a_target_that_has_ended_its_side() {
    let (_scratch, unix, target) = unix_target();
    let mut command = Command::new(agent());
    command.args(["connect", &target]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = bounded(&mut command).unwrap();
    let (mut input, mut said) = (child.stdin.take().unwrap(), String::new());
    let (mut peer, mut sent) = (unix.accept().unwrap().0, [0; 4]);
    peer.shutdown(Shutdown::Write).unwrap();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    // Wait for twice the pause that ends a TCP connection.
    thread::sleep(Duration::from_secs(1));
    input.write_all(b"late").unwrap();
    peer.read_exact(&mut sent).unwrap();
    assert_eq!(&sent, b"late");
    // `connect` ends although its input is still open.
    drop(peer);
    assert!(child.wait().unwrap().success());
}

#[test]
fn unreadable_input_ends_like_any_other() {
    let (scratch, unix, target) = unix_target();
    let mut command = Command::new(agent());
    command.args(["connect", &target]);
    command.stdin(File::open(&scratch.0).unwrap());
    let child = bounded(command.stdout(Stdio::piped()).stderr(Stdio::piped())).unwrap();
    let (mut peer, mut sent) = (unix.accept().unwrap().0, Vec::new());
    peer.read_to_end(&mut sent).unwrap();
    peer.write_all(b"answer").unwrap();
    drop(peer);
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.code() == Some(1) && ended.stdout == b"answer", "{ended:?}");
    assert!(String::from_utf8_lossy(&ended.stderr).contains("Is a directory"), "{ended:?}");
}

#[test]
fn the_exit_code_says_why_there_is_no_connection() {
    let scratch = Scratch::new();
    let root = scratch.0.to_str().unwrap();
    put(scratch.0.join("etc/mote-agent.yml"), "features: {port-forward: {ports: [1, 22]}}");
    let off = scratch.0.join("off");
    put(off.join("run/mote/status"), r#"{"running":true,"policy":"denied: exec port-forward; x"}"#);
    let (full, _clients) = full(&scratch.0.join("full"));
    drop(UnixListener::bind(scratch.0.join("left")).unwrap());
    let (full, left) = (full.as_str(), format!("unix:{root}/left"));
    for (words, code, why) in [
        (&[&*left][..], 69, "left: Connection refused"),
        (&["unix:/no/such"], 69, "cannot connect to unix:/no/such: No such file"),
        (&["127.0.0.1:1", "--deny=port-forward"], 77, "does not allow port-forward\n"),
        (&["127.0.0.1:1", "--root", off.to_str().unwrap()], 77, "not allow port-forward\n"),
        (&["127.0.0.1:2", "--root", root], 77, "does not allow port-forward to port 2\n"),
        (&["192.0.2.1:22", "--root", root], 77, "beyond the guest's ports, to \"192.0.2.1\""),
        (&[full, "--root", root], 77, "beyond the guest's ports, to \"unix:/"),
        (&[full, "--timeout", "1"], 75, "timed out"),
        (&["255.255.255.255:9"], 68, "cannot connect to 255.255.255.255:9: Network"),
        (&["example.org:22"], 2, "connect needs IP:PORT, localhost:PORT or unix:PATH\n"),
        (&[], 2, "connect needs IP:PORT, localhost:PORT or unix:PATH\n"),
    ] {
        let mut command = Command::new(agent());
        let ended = mote_tests::output(command.arg("connect").args(words)).unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.code() == Some(code) && said.contains(why), "{words:?} {ended:?}");
    }
}

/// Returns a target whose queue is full, with the sockets that keep it full.
fn full(path: &Path) -> (String, (UnixListener, Vec<UnixStream>)) {
    let listener = UnixListener::bind(path).unwrap();
    // A second listen(2) changes the length of the queue.
    rustix::net::listen(&listener, 0).unwrap();
    let clients = vec![UnixStream::connect(path).unwrap()];
    (format!("unix:{}", path.display()), (listener, clients))
}

const LIMIT: Duration = Duration::from_secs(60);

fn words(words: &[String]) -> Value {
    let head = ["sh", "-c", "for word; do printf %s \"$word\"; done", "sh"].map(str::to_owned);
    let command: Vec<_> = head.iter().chain(words).map(String::as_str).collect();
    plain(&command)
}

/// Returns arguments of maximum length that have 1.9 MiB in total.
fn two_megabytes(piece: &str) -> Vec<String> {
    const WORD: usize = 128 * 1024 - 1;
    vec![piece.repeat(WORD / piece.len()); 1_900 * 1024 / WORD]
}

fn post(pair: &Pair, body: &str) -> Answer {
    let mut wire = pair.client().connect().unwrap();
    wire.within(LIMIT).ask("POST", "/1.0/exec", "", body.as_bytes()).unwrap()
}

fn ran(pair: &Pair, request: &Value) -> Vec<u8> {
    let agent = pair.client();
    let answer = post(pair, &request.to_string());
    assert!(answer.body.len() < 80_000, "it is shown in {} bytes", answer.body.len());
    let mut running = Exec::of(&answer).unwrap().connect(&agent).unwrap();
    running.stdin.barrier().unwrap();
    let output = running.out.as_mut().unwrap().within(LIMIT).output().unwrap();
    assert_eq!(running.exec.code(&agent, LIMIT), Ok(0));
    output
}

#[test]
fn passes_arguments_of_1_9_mib_and_frees_them() {
    let mut pair = start();
    ran(&pair, &plain(&["true"]));
    let before = pair.memory("VmRSS");
    for piece in ["plain ", "\"plain and quoted\"\n \u{e4}"] {
        let all = two_megabytes(piece);
        assert!(ran(&pair, &words(&all)) == all.concat().into_bytes(), "{piece:?}");
    }
    let after = pair.memory("VmRSS");
    let peak = pair.memory("VmHWM");
    println!("long commands: {before} kB before, {after} kB after, {peak} kB at their peak");
    assert!(after <= before + 256, "{before} kB grew to {after} kB");
    // The agent holds the request and its parsed form, but no further copy.
    assert!(peak < before + 4608, "{peak} kB");
    pair.assert_alive();
}

#[test]
fn reports_the_systems_error_for_too_long_arguments() {
    let pair = start();
    let agent = pair.client();
    // First more strings than the agent has memory for, then more bytes than the kernel accepts.
    let short = vec!["x".to_owned(); 200_000];
    let long = vec!["x".repeat(1024); 2_048];
    for (many, words_of_it) in [(short, "memory"), (long, "Argument list too long")] {
        let exec = Exec::of(&post(&pair, &words(&many).to_string())).unwrap();
        let failed = exec.connect(&agent).unwrap().exec.ended(&agent, LIMIT).unwrap();
        assert_eq!(failed["status"], "Failure");
        assert_eq!(failed["metadata"]["return"], -1);
        contains(failed["err"].as_str().unwrap(), &[words_of_it]);
    }
    // A long name is abbreviated.
    let running = Running::start(&agent, &plain(&[&"n".repeat(100_000)])).unwrap();
    let failed = running.exec.ended(&agent, LIMIT).unwrap();
    assert_eq!(failed["metadata"]["return"], 127);
    assert!(failed["err"].as_str().unwrap().len() < 300);
}

#[test]
fn only_exec_accepts_more_than_a_mebibyte_within_a_limit() {
    let mut pair = start();
    // The filling is white space, so that only the length is invalid.
    let long = |length: usize| " ".repeat(length) + "{}";
    assert_eq!(post(&pair, &long(1 << 21)).short(), "400 Websockets are required for VM exec");
    let declared = |target: &str, length: usize| {
        let mut wire = pair.client().connect().unwrap();
        let head = format!("POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
        wire.send(head.as_bytes()).unwrap();
        // The agent may refuse it before everything is sent.
        for piece in long(length).as_bytes().chunks(1 << 16) {
            if wire.send(piece).is_err() {
                break;
            }
        }
        wire.within(LIMIT).answer().map(|answer| answer.short())
    };
    for (target, length) in [("/1.0/events", (1 << 20) + 1), ("/1.0/exec", (3 << 20) + 1)] {
        // The agent may close the connection before the client has read the reason.
        if let Ok(answer) = declared(target, length) {
            assert_eq!(answer, "413 Request body too long", "{target}");
        }
    }
    pair.assert_alive();
}

fn half(pair: &Pair, body: &[u8]) -> Wire {
    let mut wire = pair.client().connect().unwrap();
    let length = body.len();
    let head = format!("POST /1.0/exec HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
    wire.send(head.as_bytes()).unwrap();
    wire.within(LIMIT);
    for piece in body[..length / 2].chunks(1 << 16) {
        // The agent does not read a request that waits for memory.
        if wire.within(Duration::from_secs(1)).send(piece).is_err() {
            break;
        }
    }
    wire
}

#[test]
fn many_long_commands_share_limited_memory() {
    let mut pair = start();
    let before = pair.memory("VmRSS");
    let body = words(&two_megabytes("x")).to_string();
    let two = [half(&pair, body.as_bytes()), half(&pair, body.as_bytes())];
    let begun = Instant::now();
    let mut third = pair.client().connect().unwrap();
    let head =
        format!("POST /1.0/exec HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    third.send(head.as_bytes()).unwrap();
    // The agent waits for memory once the request turns out to be long.
    third.send(&body.as_bytes()[..70_000]).unwrap();
    assert_eq!(third.within(LIMIT).answer().unwrap().short(), "503 Too many long requests at once");
    assert!(begun.elapsed() > Duration::from_secs(2), "it did not wait for its turn");
    let peak = pair.memory("VmHWM");
    assert!(peak < before + 4608, "{before} kB grew to {peak} kB");
    // A short request does not wait.
    assert_eq!(ran(&pair, &plain(&["echo", "hi"])), b"hi\n");
    drop(two);
    thread::sleep(Duration::from_millis(500));
    assert_eq!(post(&pair, &body).status, 202, "there is room again");
    pair.assert_alive();
}
