//! Audit lines about the host's actions, and data that they never contain.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Duration;

use mote_tests::{NAME, Pair, Process, agent, wait};

const SOON: Duration = Duration::from_secs(20);

fn lines(pair: &Pair) -> Vec<String> {
    let log = pair.log();
    let lines = log.lines().filter_map(|line| line.strip_prefix("mote: info: audit: "));
    lines.map(str::to_owned).collect()
}

fn find(pair: &Pair, parts: &[&str]) -> String {
    let has = |line: &String| parts.iter().all(|part| line.contains(part));
    wait(&format!("a line with {parts:?}"), SOON, || lines(pair).into_iter().find(has)).0
}

#[test]
fn logs_two_lines_per_command_without_secrets() {
    let pair = Pair::start("lxd", &[]);
    let mut command = pair.host.exec_with(
        &["-T", "--env", "TOKEN=hushed-env"],
        &["sh", "-c", "cat; exit 3", "a\"b\n\u{1b}[2J exit=0"],
    );
    let mut child =
        mote_tests::bounded(command.stdin(Stdio::piped()).stdout(Stdio::piped())).unwrap();
    child.stdin.take().unwrap().write_all(b"hushed-stdin").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(3), &b"hushed-stdin"[..]));
    let begins = find(&pair, &["argv="]);
    let (who, argv) = begins.split_once(" argv=").unwrap();
    assert_eq!(argv, r#""sh" "-c" "cat; exit 3" "a\"b\n\u{1b}[2J exit=0""#);
    let who = who.split_once(" cwd=").unwrap().0;
    let op = who.strip_prefix("exec uid=0 gid=0 op=").unwrap();
    assert_eq!((op.len(), op.matches('-').count()), (36, 4), "{op}");
    find(&pair, &[&format!("exec op={op} exit=3")]);
    // A missing command, and a long one.
    let missing =
        pair.host.exec_with(&["-T"], &["nonesuch"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(missing.status.code(), Some(127));
    find(&pair, &["failed=\"Failed to run \\\"nonesuch\\\": No such file"]);
    let word = "x".repeat(100_000);
    let odd = pair.scratch.0.join("odd \" uid=7\n");
    std::fs::create_dir(&odd).unwrap();
    let blanks = format!("{}rm -rf /the/tail", " ".repeat(2000));
    let options = ["-T", "--cwd", odd.to_str().unwrap()];
    let mut long = pair.host.exec_with(&options, &["true", &word, &word, "lost", &blanks]);
    assert!(long.stdin(Stdio::null()).output().unwrap().status.success());
    let line = find(&pair, &["argv=\"true\" \"xxx", "the/tail"]);
    let x = "x".repeat(128);
    let tail = format!(
        "argv=\"true\" \"{x}\"...99744...\"{x}\" ...2... \"{}\"...1760...\"",
        " ".repeat(128)
    );
    assert!(line.contains(&tail) && line.ends_with(" rm -rf /the/tail\""), "{line}");
    let cwd = odd.to_str().unwrap().replace('"', "\\\"").replace('\n', "\\n");
    assert!(line.contains(&format!(" cwd=\"{cwd}\" argv=")), "{line}");
    let log = pair.log();
    assert!(!log.contains("hushed"), "{log}");
    assert!(log.lines().all(|line| line.len() < 1200));
    assert!(!log.contains(|letter: char| letter.is_control() && letter != '\n'));
}

#[test]
fn logs_each_change_and_each_session() {
    let pair = Pair::start("lxd", &[]);
    let place = pair.scratch.0.join("odd \"name");
    let path = place.to_str().unwrap();
    let from = pair.scratch.0.join("from");
    std::fs::write(&from, "hushed content").unwrap();
    pair.host.ok(&["file", "push", NAME, from.to_str().unwrap(), path]);
    let quoted = path.replace('"', "\\\"");
    let write = find(&pair, &[" write \"", &quoted]);
    let session = write.split(' ').nth(1).unwrap().to_owned();
    find(&pair, &[&format!("sftp {session} begins")]);
    find(&pair, &[&format!("sftp {session} ends: "), ", 14 bytes written"]);
    pair.host.ok(&["file", "rm", NAME, path]);
    find(&pair, &[" remove \"", &quoted]);
    assert!(!pair.log().contains("hushed"), "{}", pair.log());
}

#[test]
fn logs_a_forwarded_port() {
    let programs = format!("environment.PATH={}", agent().parent().unwrap().display());
    for (flavour, line) in [
        ("incus", "port-forward to=\"127.0.0.1\" port="),
        ("lxd", "argv=\"mote-agent\" \"connect\" \"127.0.0.1:"),
    ] {
        let pair = Pair::start(flavour, &[&programs]);
        let target = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = target.local_addr().unwrap().port().to_string();
        let mut command = pair.host.command(&["port-forward", NAME, "127.0.0.1:0", &port]);
        let mut forward = Process::bounded(command.stdout(Stdio::piped()));
        let mut local = String::new();
        let output = forward.0.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut local).unwrap();
        let mut client = TcpStream::connect(local.trim()).unwrap();
        client.write_all(b"ask").unwrap();
        let mut peer = target.accept().unwrap().0;
        peer.read_exact(&mut [0; 3]).unwrap();
        peer.write_all(b"answer").unwrap();
        drop(peer);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "answer", "{flavour}");
        find(&pair, &[&format!("{line}{port}")]);
    }
}
