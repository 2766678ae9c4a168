//! Many and large commands, with the real agent and the real host command over sockets.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use mote_tests::prelude::*;

mod arrival;
mod connect;

fn start() -> Pair {
    tried(Pair::start("lxd", &[]))
}

fn tried(pair: Pair) -> Pair {
    let mut command =
        Process::start(pair.host.exec_with(&["-T", "-n"], &["true"]).stderr(Stdio::null()));
    assert_eq!(command.ends(Duration::from_secs(10)), Some(0));
    pair
}

#[test]
fn pipes_a_gibibyte_to_a_port_and_back() {
    const PIECE: usize = 1 << 16;
    const PIECES: usize = 1 << 14;
    let pair = start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let agent = agent();
    let mut join = pair.host.exec_with(&["-T"], &[agent.to_str().unwrap(), "connect", &target]);
    let mut join = bounded(join.stdin(Stdio::piped()).stdout(Stdio::piped())).unwrap();
    let mut input = join.stdin.take().unwrap();
    let mut echo = listener.accept().unwrap().0;
    let echo = thread::spawn(move || io::copy(&mut echo.try_clone()?, &mut echo));
    let [child] = proc::children(pair.agent.0.id())[..] else { panic!() };
    let writer = thread::spawn(move || {
        let (mut noise, mut piece) = (Noise::default(), vec![0; PIECE]);
        for _ in 0..PIECES {
            noise.fill(&mut piece);
            input.write_all(&piece).unwrap();
        }
    });
    let mut output = BufReader::with_capacity(PIECE, join.stdout.take().unwrap());
    let (mut noise, mut expected, mut piece) = (Noise::default(), vec![0; PIECE], vec![0; PIECE]);
    for number in 0..PIECES {
        noise.fill(&mut expected);
        output.read_exact(&mut piece).unwrap();
        assert!(piece == expected, "piece {number} differs");
        if number == PIECES / 2 {
            let peak = proc::memory(child, "status", "VmHWM");
            assert!(peak < 2048, "connect has {peak} kB");
        }
    }
    assert_eq!(output.read(&mut piece).unwrap(), 0);
    writer.join().unwrap();
    assert_eq!(echo.join().unwrap().unwrap(), 1 << 30);
    assert!(join.wait().unwrap().success());
    let peak = pair.memory("VmHWM");
    println!("peak after 1 GiB both ways: {peak} kB");
    assert!(peak < 4096, "{peak} kB");
}

#[test]
fn reaps_orphans_as_pid_1() {
    let by = match private(Private::Processes) {
        Ok(by) => by,
        Err(why) => return skipped(&why),
    };
    let pair = tried(Pair::start_by(&by, "lxd", &[]));
    let script = "for i in 1 2 3 4 5; do (sleep 0.1 &); done; exit 0";
    assert!(pair.host.exec_with(&["-T", "-n"], &["sh", "-c", script]).status().unwrap().success());
    let list = "sleep 0.4; echo $PPID; grep -l '^State:.*Z' /proc/[0-9]*/status";
    let output = pair.host.exec_with(&["-T", "-n"], &["sh", "-c", list]).output().unwrap();
    // The orphan's parent is PID 1, and there are no zombies.
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n");
}

#[test]
fn a_command_ends_although_sigchld_was_ignored_at_start() {
    tried(Pair::start_by(&["env", "--ignore-signal=CHLD"], "lxd", &[]));
}

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
    let mut child = bounded(command.stdin(Stdio::piped()).stdout(Stdio::piped())).unwrap();
    child.stdin.take().unwrap().write_all(b"hushed-stdin").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(3), &b"hushed-stdin"[..]));
    let begins = find(&pair, &["argv="]);
    let (who, argv) = begins.split_once(" argv=").unwrap();
    assert_eq!(argv, r#""sh" "-c" "cat; exit 3" "a\"b\n\u{1b}[2J exit=0""#);
    let op = who.split_once(" cwd=").unwrap().0.strip_prefix("exec uid=0 gid=0 op=").unwrap();
    assert_eq!((op.len(), op.matches('-').count()), (36, 4), "{op}");
    find(&pair, &[&format!("exec op={op} exit=3")]);
    // A command that does not exist, and one with long arguments.
    let missing =
        pair.host.exec_with(&["-T"], &["nonesuch"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(missing.status.code(), Some(127));
    find(&pair, &["failed=\"Failed to run \\\"nonesuch\\\": No such file"]);
    let word = "x".repeat(100_000);
    let odd = pair.scratch.0.join("odd \" uid=7\n");
    fs::create_dir(&odd).unwrap();
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
    fs::write(&from, "hushed content").unwrap();
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
        BufReader::new(forward.0.stdout.take().unwrap()).read_line(&mut local).unwrap();
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
