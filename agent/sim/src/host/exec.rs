//! Commands that the host runs through the agent (P§4.1), with the data of their websockets.

use super::calls::{LIMIT, call, connect};
use super::daemon::Host;
use super::http::{BINARY, Frame, TEXT, WebSocket, open_websocket};
use crate::programs::{MISSING, code, pattern};
use crate::sim_prelude::*;

const NOT_THERE: &str = "No such file or directory";
/// Time until a new guest policy takes effect.
const SETTLED: Micros = 100 * MILLI;
/// Maximum time until the agent has received a call.
const ACCEPTED: Micros = 50 * MILLI;
/// Maximum delay of the answer to a wait request that has a time limit.
const SLACK: Micros = SECOND;
/// Longest run time of a command, and its longest wait for sockets.
const LONGEST: Micros = 25 * SECOND;
/// Signal with which the host ends a command.
const TERM: i32 = 15;

/// A command from the point of view of its sockets.
struct Command {
    host: Rc<Host>,
    name: &'static str,
    is_terminal: bool,
    /// Numbers of bytes of its input and output.
    input: usize,
    output: usize,
    millis: u64,
    is_signalled: Cell<bool>,
    is_whole: Cell<bool>,
    got: RefCell<Vec<u8>>,
    before: Before,
}

impl Command {
    fn new(host: &Rc<Host>) -> Self {
        let dice = &host.sim.dice;
        let largest = dice.pick(&[0, 100, 20_000, 200_000]);
        Self {
            host: host.clone(),
            name: if dice.one_in(3) { MISSING } else { "x" },
            is_terminal: dice.one_in(4),
            input: dice.up_to(largest),
            output: dice.up_to(largest),
            millis: dice.between(0, 8_000),
            is_signalled: Cell::new(false),
            is_whole: Cell::new(true),
            got: RefCell::default(),
            before: Before::now(&host.oracle),
        }
    }

    fn body(&self) -> String {
        let (name, count, millis) = (self.name, self.output, self.millis);
        let reads = u8::from(!self.is_terminal);
        format!(
            "{{\"command\":[\"{name}\",\"{count}\",\"{millis}\",\"{reads}\"],\"wait-for-websocket\":true,\
             \"interactive\":{}}}",
            self.is_terminal
        )
    }

    /// Returns whether the command may have lost its agent or its connections.
    fn is_excused(&self) -> bool {
        self.host.net.mishaps.get() > 0 || self.before.is_excused()
    }

    /// Returns whether the guest's policy may have denied the command since its request.
    fn is_forbidden(&self) -> bool {
        self.host.may_since.get() >= self.before.asked
    }

    /// Returns whether some of the command's output may be missing.
    fn may_lack(&self) -> bool {
        let is_ended = self.is_excused() || self.before.has_ended() || self.is_forbidden();
        is_ended || !self.is_whole.get() || self.is_signalled.get() || self.name == MISSING
    }

    /// Returns the command's exit code, unless it is killed.
    fn expected(&self) -> i32 {
        code(if self.is_terminal { 0 } else { self.input })
    }

    fn fail(&self, why: String) {
        self.host.sim.fail(why);
    }
}

/// Starts a command, connects all or some of its sockets, and waits for a few seconds for its end.
pub(crate) async fn exec(host: &Rc<Host>) {
    let sim = &host.sim;
    let command = Rc::new(Command::new(host));
    let body = command.body();
    let begun = call(host, "POST", "/1.0/exec", &body);
    let Some(begun) = within(sim, Zone::Host, LIMIT, begun).await.flatten() else { return };
    let expected = if host.may_exec.get() { 202 } else { 403 };
    // The agent may not have read the new policy yet.
    let is_settled = command.before.asked > host.may_since.get() + SETTLED;
    if begun.status() != expected && (is_settled || ![202, 403].contains(&begun.status())) {
        return sim.fail(format!("exec is answered {}, not {expected}", begun.status()));
    }
    let Some(path) = begun.header("location") else { return };
    for (name, secret) in secrets(&begun.body) {
        if sim.dice.one_in(20) {
            command.is_whole.set(false);
            continue;
        }
        let socket = socket(command.clone(), name, format!("{path}/websocket?secret={secret}"));
        sim.spawn(host.process.get().expect("this one"), socket);
    }
    wait(&command, path).await;
}

async fn wait(command: &Command, path: &str) {
    let (host, oracle) = (&command.host, &command.host.oracle);
    let sim = &host.sim;
    let (seconds, are_all_here) = (sim.dice.between(0, 5), command.is_whole.get());
    let since = sim.awake();
    let path = format!("{path}/wait?timeout={seconds}");
    let waited = call(host, "GET", &path, "");
    let limit = (seconds + 30) * SECOND;
    let waited = within(sim, Zone::Host, limit, waited).await.flatten();
    let took = sim.awake() - since;
    if command.is_excused() {
        return;
    }
    let has_ended = command.before.has_ended();
    // An agent that ends or hands over finishes running commands, but accepts no more calls.
    let is_late = command.before.was_ending || (has_ended && oracle.ended() < since + ACCEPTED);
    if took > seconds * SECOND + SLACK {
        sim.fail(format!("a wait of {seconds} s took {} ms", took / MILLI));
    }
    let Some(waited) = waited else {
        if !is_late && (are_all_here || !has_ended) {
            sim.fail(format!("a wait of {seconds} s is cut off"));
        }
        return;
    };
    let body = String::from_utf8_lossy(&waited.body);
    let says = |words: &[&str]| words.iter().any(|word| body.contains(word));
    let ended = if command.is_signalled.get() { 128 + TERM } else { command.expected() };
    let result = format!("\"return\":{}}}", command.expected());
    let ended = format!("\"return\":{ended}}}");
    let fits = match waited.status() {
        404 => is_late,
        _ if says(&["Running", "context deadline"]) => true,
        _ if says(&["policy has changed"]) => command.is_forbidden(),
        _ if says(&["The agent is stopping"]) => has_ended,
        _ if !are_all_here => true,
        _ if command.name == MISSING => says(&[NOT_THERE, &ended]),
        // SIGHUP killed the command when its agent ended.
        _ if has_ended && says(&["\"return\":129}"]) => true,
        _ => says(&[&result, &ended]),
    };
    if !fits {
        sim.fail(format!("a command should end with {ended}: {} {body}", waited.status()));
    }
}

fn secrets(body: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(body);
    let fds = text.split_once("\"fds\":{").and_then(|(_, rest)| rest.split_once('}'));
    let words: Vec<_> = fds.map_or("", |(fds, _)| fds).split('"').map(str::to_owned).collect();
    let every = |first| words.iter().skip(first).step_by(4).cloned();
    every(1).zip(every(3)).collect()
}

/// Connects a socket and uses it. A second connection to it must be rejected.
async fn socket(command: Rc<Command>, name: String, path: String) {
    let sim = &command.host.sim;
    let open = || async { open_websocket(connect(&command.host).await?, &path).await };
    let work = async {
        let (socket, status) = open().await?;
        if status == 101 && sim.dice.one_in(8) && open().await.is_some_and(|it| it.1 == 101) {
            sim.fail("a websocket is taken twice".into());
        }
        if status != 101 {
            return None;
        }
        match (&*name, command.is_terminal) {
            ("0", false) => feed(&command, &socket).await,
            ("0", true) | ("1", _) => take(&command, &socket).await,
            ("control", _) => control(&command, &socket).await,
            _ => while !matches!(socket.next().await, Frame::Over) {},
        }
        Some(())
    };
    within(sim, Zone::Host, 60 * SECOND, work).await;
}

async fn feed(command: &Command, socket: &WebSocket) {
    let sim = &command.host.sim;
    let mut sent = 0;
    while sent < command.input {
        let piece = (command.input - sent).min(1 + sim.dice.up_to(20_000));
        if !socket.send(BINARY, &pattern(sent, piece)).await {
            return;
        }
        sent += piece;
    }
    socket.send(TEXT, &[]).await;
    let over = async { while !matches!(socket.next().await, Frame::Over) {} };
    let is_over = within(sim, Zone::Host, LONGEST, over).await.is_some();
    if !is_over && !command.is_excused() {
        command.fail("a command does not end after its input and its run time".into());
    }
}

/// Reads the command's output. At the barrier it must be complete, unless the command was killed.
async fn take(command: &Command, socket: &WebSocket) {
    let mut has_barrier = false;
    loop {
        match socket.next().await {
            Frame::Binary(bytes) => {
                let mut got = command.got.borrow_mut();
                if bytes != pattern(got.len(), bytes.len()) {
                    command.fail("a command's output is not what it wrote".into());
                }
                got.extend(bytes);
            }
            Frame::Text(_) => {
                has_barrier = true;
                let got = command.got.borrow().len();
                if !command.may_lack() && got != command.output {
                    command.fail(format!("{got} of {} bytes of a command's", command.output));
                }
                if command.is_terminal {
                    socket.send(TEXT, &[]).await;
                }
            }
            Frame::Over if !has_barrier && !command.may_lack() => {
                return command.fail("a command's output has no end".into());
            }
            Frame::Over => return,
        }
    }
}

/// Kills some commands with a signal.
async fn control(command: &Command, socket: &WebSocket) {
    let sim = &command.host.sim;
    if sim.dice.one_in(4) {
        sleep(sim, Zone::Host, sim.dice.between(MILLI, 4 * SECOND)).await;
        command.is_signalled.set(true);
        let message = format!("{{\"command\":\"signal\",\"signal\":{TERM}}}");
        socket.send(TEXT, message.as_bytes()).await;
    }
    while !matches!(socket.next().await, Frame::Over) {}
}
