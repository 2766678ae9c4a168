//! Commands in pipes and terminals, and the end of the VM (P§4.1).

use rustix::termios::{LocalModes, tcgetattr};

use super::{COMMANDS, SOON, ended, exec, host, killed, much, sh, signal, started};
use crate::conform::prelude::*;

pub(in super::super) const ALL: &[Check] = &[
    COMMANDS.is("they end as they end in the guest", |agent| {
        let output = sh(agent, "echo out; echo err >&2; exit 42")?;
        equal("a script", output, (42, "out\n".into(), "err\n".into()))?;
        let output = exec(agent, &[NAME, "--", "cat"], "input")?;
        equal("cat", output, (0, "input".into(), String::new()))?;
        equal("killed", sh(agent, "kill -9 $$")?.0, killed(agent))?;
        let (code, _, error) = exec(agent, &[NAME, "--", "nonesuch"], "")?;
        equal(&format!("an unknown command's {error:?}"), code, 127)?;
        let said = "mote-host: Command not found: nonesuch, or its interpreter (";
        hold(format!("an unknown command: {error}"), error.starts_with(said))?;
        let (code, _, error) = exec(agent, &[NAME, "--", "/proc/version"], "")?;
        equal("no program", (code, error.as_str()), (126, "mote-host: Command not executable\n"))?;
        equal("no directory", exec(agent, &["--cwd", "/nonesuch", NAME, "--", "pwd"], "")?.0, 127)?;
        // The host closes the websocket when there is no more output; the command continues.
        equal("all closed", sh(agent, "exec >&- 2>&- <&-; sleep 1; exit 3")?.0, 3)?;
        // The host closes one stream early: the command gets SIGPIPE; the other stream continues.
        let script = "while echo line; do :; done; echo over >&2; exit 9";
        let (mut child, output) = started(agent, &[NAME, "--", "sh", "-c", script], "line\n")?;
        drop(output);
        let code = ended(&mut child, "a command whose reader went away")?;
        let codes = [9, killed(agent), 141].map(Some);
        hold(format!("a reader that goes away: {code:?}"), codes.contains(&code))
    }),
    COMMANDS.is("user, environment and directory are as asked for", |agent| {
        let who = ["--user", "1000", "--group", "1000", "--cwd", "/tmp", "--env", "A=b c"];
        let show = "id -u; id -g; id -G; pwd; echo $A; echo $FROM_HOST; echo ${HOME-none}";
        let asked = [&who[..], &[NAME, "--", "sh", "-c", show]].concat();
        let (code, output, _) = exec(agent, &asked, "")?;
        let expected = (0, "1000\n1000\n1000\n/tmp\nb c\nyes\nnone\n");
        equal("as asked for", (code, output.as_str()), expected)
    }),
    COMMANDS.is("signals reach them", |agent| {
        let script = "trap 'echo hup' HUP; trap 'echo int' INT; trap 'echo term; exit 7' TERM; \
                      echo ready; while :; do sleep 0.1; done";
        let (mut child, mut output) = started(agent, &[NAME, "--", "sh", "-c", script], "ready\n")?;
        let mut text = String::new();
        for (number, length) in [(Signal::HUP, 4), (Signal::INT, 4), (Signal::TERM, 5)] {
            signal(&child, number)?;
            let piece = (&mut output).take(length).read_to_string(&mut text);
            piece.map_err(|error| error.to_string())?;
        }
        equal("each", (text.as_str(), ended(&mut child, "TERM")?), ("hup\nint\nterm\n", Some(7)))
    }),
    // Checks that no buffer between the command and the reader grows.
    COMMANDS.is("one whose output nobody reads waits", |agent| {
        let script = "echo $$ >/tmp/writer; exec dd if=/dev/zero bs=64k count=320";
        let (mut child, mut output) = started(agent, &[NAME, "--", "sh", "-c", script], "")?;
        let written = "sleep 1; sed -n s/wchar:.//p /proc/$(cat /tmp/writer)/io";
        let count = Cell::new(0);
        agent.wait("the writer", SOON, |agent| {
            let said = sh(agent, written).map_or(String::new(), |(_, said, _)| said);
            count.set(said.trim().parse::<u64>().unwrap_or(0));
            count.get() > 0
        })?;
        hold(format!("{} bytes are written", count.get()), count.get() < 8 << 20)?;
        let mut all = Vec::new();
        output.read_to_end(&mut all).map_err(|error| error.to_string())?;
        equal("all of it", (all.len(), ended(&mut child, "dd")?), (320 << 16, Some(0)))
    }),
    COMMANDS.is("`cat` gives back 8 MiB (Incus) or 64 MiB (LXD) as they were", |agent| {
        let sent = noise(much(agent));
        let output = host(agent, &["exec", "-T", NAME, "--", "cat"], &sent)?;
        let length = output.stdout.len();
        let same = output.status.success() && output.stdout == sent;
        hold(format!("{length} of {} bytes come back, or others", sent.len()), same)
    }),
    COMMANDS.is("a terminal has our size, follows it, and is as before at the end", |agent| {
        let mut terminal = Terminal::open(97, 31);
        let before = modes(&terminal)?;
        let script = "test -t 0 && test -t 1 && test -t 2 && stty size; \
                      until test \"$(stty size)\" = '40 120'; do sleep 0.1; done; echo resized; read x; exit 5";
        let mut child = inside(agent, &terminal, &[NAME, "--", "sh", "-c", script])?;
        terminal.until("31 97\r\n");
        terminal.resize(120, 40);
        // The client is not the terminal's foreground process, so the kernel sends it no SIGWINCH.
        signal(&child, Signal::WINCH)?;
        terminal.until("resized\r\n");
        terminal.say("\r");
        equal("the shell", ended(&mut child, "the shell")?, Some(5))?;
        hold("raw mode is not taken back", modes(&terminal)? == before)
    }),
];

const LIFE: Group = Group::new("Life", "P§1.3").alone();

pub(in super::super) const POWER: &[Check] = &[
    LIFE.is("the agent has lived through all this", |agent| {
        same("names of it", agent.guest("grep -c Name /proc/$(cat /run/agent.pid)/status")?, "1")
    }),
    LIFE.of("P§4.1").is("a power cut is a disconnection", |agent| {
        let (mut child, _output) =
            started(agent, &[NAME, "--", "sh", "-c", "echo on; sleep 60"], "on\n")?;
        locked(&agent.vm).cut();
        equal("the command", ended(&mut child, "the power cut")?, Some(129))?;
        let mut said = String::new();
        let mut errors = child.stderr.take().ok_or("no pipe")?;
        errors.read_to_string(&mut said).map_err(|error| error.to_string())?;
        hold(&said, said.contains("Disconnected: QEMU ended"))
    }),
];

fn inside(agent: &Agent, terminal: &Terminal, args: &[&str]) -> Try<Child> {
    let mut command = agent.command(&[&["exec"], args].concat());
    command.stdin(terminal.side()).stdout(terminal.side()).stderr(terminal.side());
    bounded(&mut command).map_err(|error| format!("mote-host: {error}"))
}

fn modes(terminal: &Terminal) -> Try<LocalModes> {
    let all = tcgetattr(&terminal.theirs).map_err(|error| error.to_string())?;
    Ok(all.local_modes)
}
