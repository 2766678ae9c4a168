//! Commands.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mote_tests::host::NAME;
use mote_tests::terminal::Terminal;
use mote_tests::{noise, wait};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::tcgetattr;

use crate::world::{SOON, World, within};

pub(crate) fn commands_end_as_they_end_in_the_guest(world: &World) {
    assert_eq!(world.sh("echo out; echo err >&2; exit 42"), (42, "out\n".into(), "err\n".into()));
    assert_eq!(world.exec(&[NAME, "--", "cat"], "input"), (0, "input".into(), String::new()));
    assert_eq!(world.sh("kill -9 $$").0, world.judge.killed);
    let (code, _, error) = world.exec(&[NAME, "--", "nonesuch"], "");
    assert_eq!(code, 127, "{error}");
    assert!(
        error.starts_with("mote-host: Command not found: nonesuch, or what it runs ("),
        "{error}"
    );
    let (code, _, error) = world.exec(&[NAME, "--", "/proc/version"], "");
    assert_eq!((code, error.as_str()), (126, "mote-host: Command not executable\n"));
    assert_eq!(world.exec(&["--cwd", "/nonesuch", NAME, "--", "pwd"], "").0, 127);
    // The host says goodbye on control when there is no more output; the command goes on.
    assert_eq!(world.sh("exec >&- 2>&- <&-; sleep 1; exit 3").0, 3, "{:?}", world.judge);
    // Closed by us early: the command is told, and what it says to the other stream still comes.
    let mut command = world.host.command(&["exec", "-T", "-n", NAME, "--", "sh", "-c"]);
    let script = "while echo line; do :; done; echo over >&2; exit 9";
    let mut child = Command::spawn(command.arg(script).stdout(Stdio::piped())).expect("mote-host");
    child.stdout.take().expect("a pipe").read_exact(&mut [0; 5]).expect("a line");
    let ended = within(&mut child, "a command whose reader went away");
    assert!(
        ended == Some(9) || ended == Some(world.judge.killed) || ended == Some(141),
        "{ended:?}"
    );
}

pub(crate) fn identity_environment_and_directory_are_as_asked(world: &World) {
    let who = ["--user", "1000", "--group", "1000", "--cwd", "/tmp", "--env", "A=b c"];
    let show = "id -u; id -g; id -G; pwd; echo $A; echo $FROM_HOST; echo ${HOME-none}";
    let (code, output, _) = world.exec(&[&who[..], &[NAME, "--", "sh", "-c", show]].concat(), "");
    assert_eq!((code, output.as_str()), (0, "1000\n1000\n1000\n/tmp\nb c\nyes\nnone\n"));
    // What the agent fills in by itself.
    let show = "echo $HOME $USER $LANG; pwd; echo $PATH";
    let (_, output, _) = world.exec(&["--bare", NAME, "--", "sh", "-c", show], "");
    let expected = "/root root C.UTF-8\n/root\n\
                    /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n";
    assert_eq!(output, expected, "{:?}", world.judge);
}

pub(crate) fn signals_and_lost_sockets_reach_the_command(world: &World) {
    let script = "trap 'echo term; exit 7' TERM; echo ready; while :; do sleep 0.1; done";
    let mut command = world.host.command(&["exec", "-T", "-n", NAME, "--", "sh", "-c", script]);
    let mut child = Command::spawn(command.stdout(Stdio::piped())).expect("mote-host");
    let mut output = child.stdout.take().expect("a pipe");
    output.read_exact(&mut [0; 6]).expect("ready");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("a signal");
    let mut text = String::new();
    output.read_to_string(&mut text).expect("text");
    assert_eq!((text.as_str(), within(&mut child, "TERM")), ("term\n", Some(7)));
    // Without control nobody could stop the command: it is killed.
    let dropped = world.exec(&["-n", "--fault", "drop-control=500", NAME, "--", "sleep", "60"], "");
    assert_eq!(dropped.0, world.judge.killed);
}

/// Nothing between the command and whoever reads may grow.
pub(crate) fn output_that_nobody_reads_stops_the_command(world: &World) {
    let script = "echo $$ >/tmp/writer; exec dd if=/dev/zero bs=64k count=320";
    let stalled = ["exec", "-T", "-n", "--fault", "stall=8", NAME, "--", "sh", "-c", script];
    let mut child = world.host.command(&stalled).stdout(Stdio::piped()).spawn().expect("mote-host");
    let mut output = child.stdout.take().expect("a pipe");
    let written = "sleep 1; sed -n s/wchar:.//p /proc/$(cat /tmp/writer)/io";
    let looked = || world.sh(written).1.trim().parse().ok().filter(|count: &u64| *count > 0);
    let (count, _) = wait("the writer", SOON, looked);
    assert!(count < 8 << 20, "{:?}: {count} bytes", world.judge);
    let mut all = Vec::new();
    output.read_to_end(&mut all).expect("all of it");
    assert_eq!((all.len(), within(&mut child, "dd")), (320 << 16, Some(0)));
}

pub(crate) fn sockets_that_misbehave_end_the_operation_and_nothing_else(world: &World) {
    let with = |fault: &str| world.exec(&["--fault", fault, NAME, "--", "cat"], "in");
    for fault in ["skip=control", "skip=1"] {
        let begun = Instant::now();
        let (code, _, error) = with(fault);
        assert_eq!(code, 1, "{fault}: {error}");
        assert!(error.contains("Timed out waiting for websockets to connect"), "{error}");
        assert!(begun.elapsed() > Duration::from_secs(4), "{:?}", begun.elapsed());
    }
    for fault in ["bad-secret=control", "bad-secret=2"] {
        let (code, _, error) = with(fault);
        assert!(code == 1 && error.contains("permission denied"), "{fault}: {error}");
    }
    assert_eq!(with("no-barrier"), (0, "in".into(), String::new()));
    assert_eq!(world.sh("exit 3").0, 3);
}

pub(crate) fn a_terminal_has_our_size_and_follows_it(world: &World) {
    let mut terminal = Terminal::open(97, 31);
    let before = tcgetattr(&terminal.theirs).expect("a terminal");
    let mut command = world.host.command(&["exec", NAME, "--", "sh", "-c"]);
    command
        .arg("test -t 0 && test -t 1 && test -t 2 && stty size; read x; stty size; read x; exit 5");
    command.stdin(terminal.side()).stdout(terminal.side()).stderr(terminal.side());
    let mut child = command.spawn().expect("mote-host");
    terminal.until("31 97\r\n");
    terminal.resize(120, 40);
    // It is not our terminal's foreground process, so the kernel does not tell it.
    kill_process(Pid::from_child(&child), Signal::WINCH).expect("a signal");
    std::thread::sleep(Duration::from_secs(1));
    terminal.say("\r");
    terminal.until("40 120\r\n");
    terminal.say("\r");
    assert_eq!(within(&mut child, "the shell"), Some(5), "{:?}", world.judge);
    let after = tcgetattr(&terminal.theirs).expect("a terminal");
    assert_eq!(after.local_modes, before.local_modes, "raw mode was not taken back");
}

pub(crate) fn an_editor_follows_the_size_while_it_runs(world: &World) {
    let lines = "i=1; while [ $i -le 60 ]; do echo line-$i.; i=$((i+1)); done >/tmp/lines";
    assert_eq!(world.sh(lines).0, 0);
    let mut terminal = Terminal::open(80, 25);
    let mut command =
        world.host.command(&["exec", "--env", "TERM=linux", NAME, "--", "vi", "/tmp/lines"]);
    command.stdin(terminal.side()).stdout(terminal.side()).stderr(terminal.side());
    let mut child = command.spawn().expect("mote-host");
    // The last line of 25 is vi's own; what is below shows when there is room.
    terminal.until("line-24.");
    terminal.resize(80, 40);
    kill_process(Pid::from_child(&child), Signal::WINCH).expect("a signal");
    terminal.until("line-39.");
    terminal.say(":q!\r");
    assert_eq!(within(&mut child, "vi"), Some(0), "{:?}", world.judge);
}

pub(crate) fn the_stream_is_the_same_both_ways(world: &World) {
    let sent = noise(world.judge.mebibytes << 20);
    let begun = Instant::now();
    let output = world.host(&["exec", "-T", NAME, "--", "cat"], &sent);
    let took = begun.elapsed();
    let same = output.stdout == sent;
    assert!(output.status.success() && same, "{:?}: {}", world.judge, output.stdout.len());
    println!("{}: to cat and back in {took:?}", world.judge.what());
}

pub(crate) fn a_power_cut_is_a_disconnection(world: World) {
    let World { mut vm, host, .. } = world;
    let mut command = host.command(&["exec", "-T", "-n", NAME, "--", "sh", "-c"]);
    let script = "echo on; sleep 60";
    command.arg(script).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("mote-host");
    child.stdout.take().expect("a pipe").read_exact(&mut [0; 3]).expect("a word");
    vm.cut();
    assert_eq!(within(&mut child, "the power cut"), Some(129));
    let mut said = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert!(said.contains("Disconnected: QEMU ended"), "{said}");
}
