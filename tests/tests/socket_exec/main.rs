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

use mote_tests::{Noise, Pair, Private, Process, private, skipped};

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
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let agent = mote_tests::agent();
    let mut join = pair.host.exec_with(&["-T"], &[agent.to_str().unwrap(), "connect", &target]);
    let mut join = mote_tests::bounded(join.stdin(Stdio::piped()).stdout(Stdio::piped())).unwrap();
    let mut input = join.stdin.take().unwrap();
    let mut echo = listener.accept().unwrap().0;
    let echo = std::thread::spawn(move || std::io::copy(&mut echo.try_clone()?, &mut echo));
    let [child] = mote_tests::proc::children(pair.agent.0.id())[..] else { panic!() };
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
