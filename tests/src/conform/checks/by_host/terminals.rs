//! Commands in a terminal (P§4.1).

use std::process::Child;

use rustix::process::Signal;
use rustix::termios::{LocalModes, tcgetattr};

use super::cli::{COMMANDS, ended, sh, signal};
use crate::bounded;
use crate::conform::agent::Agent;
use crate::conform::{Check, Claim, equal, hold};
use crate::host::NAME;
use crate::terminal::Terminal;

pub(super) const ALL: &[Check] = &[
    COMMANDS.is("a terminal has our size, follows it, and is as before at the end", size),
    COMMANDS.is("an editor follows the size while it runs", editor),
];

fn inside(agent: &Agent, terminal: &Terminal, args: &[&str]) -> Result<Child, String> {
    let mut command = agent.command(&[&["exec"], args].concat());
    command.stdin(terminal.side()).stdout(terminal.side()).stderr(terminal.side());
    bounded(&mut command).map_err(|error| format!("mote-host: {error}"))
}

fn modes(terminal: &Terminal) -> Result<LocalModes, String> {
    let all = tcgetattr(&terminal.theirs).map_err(|error| error.to_string())?;
    Ok(all.local_modes)
}

fn size(agent: &Agent) -> Claim {
    let mut terminal = Terminal::open(97, 31);
    let before = modes(&terminal)?;
    let script = "test -t 0 && test -t 1 && test -t 2 && stty size; \
                  until test \"$(stty size)\" = '40 120'; do sleep 0.1; done; echo resized; read x; exit 5";
    let mut child = inside(agent, &terminal, &[NAME, "--", "sh", "-c", script])?;
    terminal.until("31 97\r\n");
    terminal.resize(120, 40);
    // It is not our terminal's foreground process, so the kernel sends it no SIGWINCH.
    signal(&child, Signal::WINCH)?;
    terminal.until("resized\r\n");
    terminal.say("\r");
    equal("the shell", ended(&mut child, "the shell")?, Some(5))?;
    hold("raw mode is not taken back", modes(&terminal)? == before)
}

fn editor(agent: &Agent) -> Claim {
    let lines = "i=1; while [ $i -le 60 ]; do echo line-$i.; i=$((i+1)); done >/tmp/lines";
    equal("60 lines", sh(agent, lines)?.0, 0)?;
    let mut terminal = Terminal::open(80, 25);
    let vi = ["--env", "TERM=linux", NAME, "--", "vi", "/tmp/lines"];
    let mut child = inside(agent, &terminal, &vi)?;
    // The last of 25 lines is vi's status, which it draws last. Then it waits for keys or a signal.
    terminal.until(" 1/60 ");
    terminal.resize(80, 40);
    signal(&child, Signal::WINCH)?;
    terminal.until("line-39.");
    terminal.say(":q!\r");
    equal("vi", ended(&mut child, "vi")?, Some(0))
}
