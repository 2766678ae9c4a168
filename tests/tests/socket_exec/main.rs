//! Many and large commands, with the real agent and the real host command over sockets. The
//! conformance suite covers single commands.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod arrival;
mod audit;
mod connect;
mod hang_up;
mod long;

use std::io::{BufReader, Read, Write};
use std::process::Stdio;
use std::time::Duration;

use mote_tests::{Noise, Pair, Private, Process, private, skipped, wait};

fn start() -> Pair {
    tried(Pair::start("lxd", &[]))
}

fn tried(pair: Pair) -> Pair {
    let mut command =
        Process::start(pair.host.exec_with(&["-T", "-n"], &["true"]).stderr(Stdio::null()));
    let limit = Duration::from_secs(10);
    assert!(wait("its end", limit, || command.0.try_wait().unwrap()).0.success());
    pair
}

/// Returns the descriptors and children of the agent.
fn holdings(pair: &Pair) -> (usize, String) {
    let proc = format!("/proc/{}", pair.agent.0.id());
    let descriptors = std::fs::read_dir(format!("{proc}/fd")).unwrap().count();
    let id = pair.agent.0.id();
    let children = std::fs::read_to_string(format!("{proc}/task/{id}/children")).unwrap();
    (descriptors, children)
}

#[test]
fn pipes_a_gibibyte_to_a_port_and_back() {
    const PIECE: usize = 1 << 16;
    const PIECES: usize = 1 << 14;
    let pair = start();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let agent = mote_tests::agent();
    let mut join = pair.host.exec_with(&["-T"], &[agent.to_str().unwrap(), "connect", &target]);
    let mut join = mote_tests::bounded(join.stdin(Stdio::piped()).stdout(Stdio::piped())).unwrap();
    let mut input = join.stdin.take().unwrap();
    let mut echo = listener.accept().unwrap().0;
    let echo = std::thread::spawn(move || std::io::copy(&mut echo.try_clone()?, &mut echo));
    let child = holdings(&pair).1.trim().parse().unwrap();
    let writer = std::thread::spawn(move || {
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
        assert!(piece == expected, "piece {number} is another");
        if number == PIECES / 2 {
            let peak = mote_tests::proc::memory(child, "status", "VmHWM");
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

/// 5,000 with `MOTE_LONG`.
#[test]
fn many_commands_in_sequence_leak_nothing() {
    let mut pair = start();
    let count = if std::env::var_os("MOTE_LONG").is_some() { 5000 } else { 150 };
    let one = |number: usize| {
        let status = pair.host.exec_with(&["-T", "-n"], &["true"]).status().unwrap();
        assert!(status.success(), "number {number}: {status}");
    };
    let rest = |descriptors: Option<usize>| {
        let look = || {
            std::thread::sleep(Duration::from_secs(6));
            let ((open, children), memory) = (holdings(&pair), pair.memory("VmRSS"));
            let operations = pair.client().get("/1.0/operations").unwrap();
            println!("{open} descriptors, children {children:?}, operations {operations}");
            let kept = operations.as_object().is_some_and(|kept| !kept.is_empty());
            let is_at_rest = !kept && children.is_empty();
            (is_at_rest && descriptors.is_none_or(|before| open == before))
                .then_some((open, memory))
        };
        wait("as many descriptors as before, no children", Duration::from_secs(20), look).0
    };
    let before = rest(None).0;
    let run = |from: usize| {
        (from..from + count / 2).for_each(one);
        rest(Some(before));
        // The agent keeps up to 70 kB for the next call, and frees it after a pause.
        one(from + count / 2);
        rest(Some(before)).1
    };
    let (half, whole) = (run(0), run(count / 2));
    println!("{count} commands: {half} kB after half of them, {whole} kB after all");
    assert!(whole <= half + 64, "{half} then {whole} kB");
    pair.assert_alive();
}

#[test]
fn a_command_waits_for_a_stalled_host() {
    let mut pair = start();
    let before = pair.memory("VmHWM");
    let mut yes = pair.host.exec_with(&["-T", "-n", "--fault", "stall=600"], &["yes"]);
    let mut yes = mote_tests::bounded(yes.stdout(Stdio::null())).unwrap();
    wait("yes", Duration::from_secs(20), || (!holdings(&pair).1.is_empty()).then_some(()));
    let child = holdings(&pair).1.trim().to_owned();
    // The buffers between the command and the host limit what it can write.
    let written = || {
        let io = std::fs::read_to_string(format!("/proc/{child}/io")).unwrap();
        let line = io.lines().find(|line| line.starts_with("wchar")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let mut last = 0;
    wait("silence", Duration::from_secs(30), || {
        std::thread::sleep(Duration::from_secs(1));
        let now = written();
        (std::mem::replace(&mut last, now) == now).then_some(())
    });
    assert!(last < 8 << 20, "{last} bytes");
    let peak = pair.memory("VmHWM");
    assert!(peak < before + 1024, "{before} then {peak} kB");
    // Longer than any time-out of a connection, because the host still wants the output.
    std::thread::sleep(Duration::from_secs(12));
    assert_eq!(holdings(&pair).1.trim(), child);
    yes.kill().unwrap();
    yes.wait().unwrap();
    wait("its end", Duration::from_secs(10), || holdings(&pair).1.is_empty().then_some(()));
    pair.assert_alive();
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
    // Its parent is PID 1, and there are no zombies.
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n");
}

#[test]
fn a_command_ends_although_sigchld_was_ignored_at_start() {
    tried(Pair::start_by(&["env", "--ignore-signal=CHLD"], "lxd", &[]));
}
