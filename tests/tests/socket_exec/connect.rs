//! `mote-agent connect`, with a file or pipe on one side and a listener of the test on the other.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use mote_tests::{Noise, Scratch, agent, output, put};

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
        mote_tests::bounded(command.stdout(Stdio::piped())).unwrap()
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
    let mut child = mote_tests::bounded(&mut command).unwrap();
    let (mut input, mut said) = (child.stdin.take().unwrap(), String::new());
    let (mut peer, mut sent) = (unix.accept().unwrap().0, [0; 4]);
    peer.shutdown(Shutdown::Write).unwrap();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    // Twice the pause that ends a TCP connection.
    std::thread::sleep(Duration::from_secs(1));
    input.write_all(b"late").unwrap();
    peer.read_exact(&mut sent).unwrap();
    assert_eq!(&sent, b"late");
    // Although the input is still open.
    drop(peer);
    assert!(child.wait().unwrap().success());
}

#[test]
fn unreadable_input_ends_like_any_other() {
    let (scratch, unix, target) = unix_target();
    let mut command = Command::new(agent());
    command.args(["connect", &target]);
    command.stdin(File::open(&scratch.0).unwrap());
    let child = mote_tests::bounded(command.stdout(Stdio::piped()).stderr(Stdio::piped())).unwrap();
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
        let ended = output(command.arg("connect").args(words).stdin(Stdio::null())).unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.code() == Some(code) && said.contains(why), "{words:?} {ended:?}");
    }
}

/// Returns a target whose queue is full, and what fills it.
fn full(path: &std::path::Path) -> (String, (UnixListener, Vec<UnixStream>)) {
    let listener = UnixListener::bind(path).unwrap();
    // The call also changes the length of the queue.
    rustix::net::listen(&listener, 0).unwrap();
    let clients = vec![UnixStream::connect(path).unwrap()];
    (format!("unix:{}", path.display()), (listener, clients))
}
