//! The websockets of one exec and the threads that serve them (P§4.1). A stream ends with a
//! barrier. If the output is not read here, mote-host does not read it from the agent, either.

use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{JoinHandle, scope, spawn};

use anyhow::{Context, Result, bail};
use rustix::stdio::{stderr, stdin, stdout};
use serde_json::{Value, json};
use signal_hook::consts::{
    SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH,
};
use signal_hook::iterator::Signals;

use super::output::{AllOutput, Flow, Tail};
use super::request::Exec;
use super::run::Asked;
use super::terminal;
use crate::agent::websocket::{self, Incoming, Outgoing, Piece, Pulse, Socket, hang_up};
use crate::{Agent, Limit};

/// Bytes per message, as in Go's client.
const PIECE: usize = 32 * 1024;

/// All sockets of a command.
pub struct Sockets {
    control: Socket,
    /// With a terminal, one socket for both directions; otherwise stdin, stdout and stderr.
    data: Vec<Socket>,
}

enum Control {
    Resize(u16, u16),
    Signal(i32),
    /// Closes the control socket, after all output has ended.
    Goodbye,
}

impl Sockets {
    /// Connects the sockets, control first. LXD connects the others at the same time, Incus and
    /// older versions one after the other.
    pub(super) fn connect(agent: &Agent, asked: &Asked, exec: &Exec, limit: Limit) -> Result<Self> {
        let is_interactive = exec.is_interactive();
        let names: &[&str] = if is_interactive { &["0"] } else { &["0", "1", "2"] };
        let secrets = asked.fds.as_object().context("the operation has no fds")?;
        if secrets.len() != names.len() + 1 {
            bail!("unexpected set of fds: {}", asked.fds);
        }
        let connect = |name: &str| -> Result<Socket> {
            let secret = secrets.get(name).and_then(Value::as_str);
            let secret = secret.with_context(|| format!("no secret for {name}"))?;
            let target = format!("/1.0/operations/{}/websocket?secret={secret}", asked.id);
            websocket::connect(agent, &target, limit).with_context(|| format!("socket {name}"))
        };
        let control = connect("control")?;
        let data = if agent.instance.flavour.is_lxd() {
            scope(|threads| {
                let all: Vec<_> =
                    names.iter().map(|name| threads.spawn(|| connect(name))).collect();
                let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                    thread.join().unwrap_or_else(|_| bail!("a thread panicked"))
                };
                all.into_iter().map(join).collect::<Result<_>>()
            })?
        } else {
            names.iter().map(|name| connect(name)).collect::<Result<_>>()?
        };
        Ok(Self { control, data })
    }

    pub fn serve(self, exec: &Exec) -> Result<AllOutput> {
        let (control, orders) = channel();
        let Socket { incoming, outgoing, .. } = self.control;
        let pulse = incoming.pulse();
        spawn(move || drain(incoming));
        spawn(move || steer(outgoing, &orders));
        let is_interactive = self.data.len() == 1;
        let mut outputs = Outputs::default();
        watch_signals(control.clone(), exec, &outputs.flow, pulse)?;
        let mut data = self.data.into_iter();
        let mut input = None;
        if let Some(Socket { incoming, outgoing, line }) = data.next() {
            input = Some(line.try_clone()?);
            if is_interactive {
                let to = terminal::unbuffered(stdout())?;
                outputs.receive("terminal", to, &exec.tails[0], incoming, line.try_clone()?)?;
            } else {
                spawn(move || drain(incoming));
            }
            let exec = exec.clone();
            spawn(move || send(outgoing, &line, &exec));
        }
        let to = [terminal::unbuffered(stdout())?, terminal::unbuffered(stderr())?];
        for ((name, to), tail) in ["stdout", "stderr"].into_iter().zip(to).zip(&exec.tails) {
            if let Some(Socket { incoming, line, .. }) = data.next() {
                outputs.receive(name, to, tail, incoming, line)?;
            }
        }
        Ok(finish(outputs, input, control))
    }
}

/// Waits for the end of all output, hangs up the input, then closes control, as real hosts do.
fn finish(outputs: Outputs, input: Option<UnixStream>, control: Sender<Control>) -> AllOutput {
    let (done, cuts) = channel();
    let Outputs { threads, flow, lines, .. } = outputs;
    spawn(move || {
        for output in threads {
            if let Some(cut) = output.join().unwrap_or_default() {
                let _gone = done.send(cut);
            }
        }
        if let Some(line) = input {
            hang_up(&line);
        }
        let _over = control.send(Control::Goodbye);
        drop(done);
    });
    AllOutput { cuts, flow, lines }
}

fn drain(mut incoming: Incoming) {
    while incoming.receive().is_ok_and(|piece| !matches!(piece, Piece::Closed)) {}
}

fn steer(mut control: Outgoing, orders: &Receiver<Control>) {
    for order in orders {
        let (command, args, signal) = match order {
            Control::Resize(width, height) => {
                // The server's client sends the numbers as strings.
                let args = json!({"width": width.to_string(), "height": height.to_string()});
                ("window-resize", args, 0)
            }
            Control::Signal(signal) => ("signal", Value::Null, signal),
            Control::Goodbye => return drop(control.close()),
        };
        // Like the server's client, always sends all three fields.
        let message = json!({"command": command, "args": args, "signal": signal});
        if control.text(message.to_string()).is_err() {
            return;
        }
    }
}

/// Passes on this process's signals, and new sizes if there is a terminal.
fn watch_signals(
    control: Sender<Control>,
    exec: &Exec,
    flow: &Arc<Flow>,
    guest: Pulse,
) -> Result<()> {
    const ENDS: [i32; 5] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP];
    let mut signals = Signals::new([SIGCONT, SIGUSR1, SIGUSR2, SIGWINCH])?;
    if !exec.keeps_signals {
        ENDS.iter().try_for_each(|signal| signals.add_signal(*signal))?;
    }
    let (flow, is_interactive) = (flow.clone(), exec.is_interactive());
    let mut unread = Some(flow.clone()).filter(|_| !is_interactive);
    spawn(move || {
        for signal in signals.forever() {
            if ENDS[..4].contains(&signal) {
                if let Some(flow) = unread.take() {
                    spawn(move || flow.end_if_unread(signal));
                }
                let (flow, guest) = (flow.clone(), guest.clone());
                spawn(move || flow.end_if_silent(&guest, signal));
            }
            let order = match (signal, terminal::size()) {
                (SIGWINCH, Some((width, height))) if is_interactive => {
                    Control::Resize(width, height)
                }
                (SIGWINCH, _) => continue,
                (signal, _) => Control::Signal(signal),
            };
            if control.send(order).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// The output streams. Each has a thread.
#[derive(Default)]
struct Outputs {
    threads: Vec<JoinHandle<Option<String>>>,
    lines: Vec<UnixStream>,
    flow: Arc<Flow>,
}

impl Outputs {
    /// Reads one stream up to its barrier, then hangs up.
    fn receive(
        &mut self,
        name: &'static str,
        mut to: File,
        tail: &Tail,
        mut incoming: Incoming,
        line: UnixStream,
    ) -> Result<()> {
        let (flow, tail) = (self.flow.clone(), tail.clone());
        let mut write = move |piece: &[u8]| {
            tail.take(piece);
            to.write_all(piece)
        };
        self.lines.push(line.try_clone()?);
        self.threads.push(spawn(move || {
            flow.writing.fetch_add(1, Ordering::AcqRel);
            let cut = loop {
                flow.writing.fetch_sub(1, Ordering::AcqRel);
                let next = incoming.receive();
                flow.pieces.fetch_add(1, Ordering::AcqRel);
                flow.writing.fetch_add(1, Ordering::AcqRel);
                match next {
                    // If the reader is gone, the command must notice. A full disk is a different
                    // error.
                    Ok(Piece::Bytes(bytes)) => match write(&bytes) {
                        Ok(()) => {}
                        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => break None,
                        Err(error) => break Some(format!("{name} is lost: {error}")),
                    },
                    Ok(Piece::Text(_)) => break None,
                    Ok(Piece::Closed) => {
                        break Some(format!("{name} was closed without a barrier"));
                    }
                    Err(error) => break Some(format!("{name}: {error:#}")),
                }
            };
            flow.writing.fetch_sub(1, Ordering::AcqRel);
            hang_up(&line);
            cut
        }));
        Ok(())
    }
}

/// Sends stdin and a barrier. Pipes are then hung up immediately, as real clients do; a terminal's
/// socket is still needed for output.
fn send(mut outgoing: Outgoing, line: &UnixStream, exec: &Exec) {
    let mut piece = vec![0; PIECE];
    loop {
        let read = || rustix::io::read(stdin(), &mut piece);
        let count = if exec.no_stdin { Ok(0) } else { rustix::io::retry_on_intr(read) };
        match piece.get(..count.unwrap_or(0)) {
            Some([]) | None => break,
            Some(bytes) if outgoing.bytes(bytes).is_err() => return,
            Some(_) => {}
        }
    }
    if outgoing.barrier().is_ok() && !exec.is_interactive() {
        hang_up(line);
    }
}
