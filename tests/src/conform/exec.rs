//! Commands through `POST /1.0/exec`, as the servers' clients run them (P§4.1).

use super::wire::{Answer, TIMEOUT};
use super::ws::Ws;
use crate::prelude::*;

#[derive(Clone, Debug)]
pub struct Done {
    pub code: i64,
    /// Standard output; with a terminal, all output.
    pub out: String,
    pub err: String,
}

pub struct Exec {
    pub operation: String,
    pub made: Value,
}

pub struct Running {
    pub exec: Exec,
    pub control: Ws,
    /// Standard input; with a terminal, both directions.
    pub stdin: Ws,
    /// Standard output; none with a terminal.
    pub out: Option<Ws>,
    /// Standard error; none with a terminal.
    pub err: Option<Ws>,
}

pub fn plain(command: &[&str]) -> Value {
    json!({"command": command, "wait-for-websocket": true, "interactive": false, "environment": {}})
}

pub fn script(text: &str) -> Value {
    plain(&["sh", "-c", text])
}

pub fn terminal(text: &str) -> Value {
    with(script(text), json!({"interactive": true}))
}

pub fn with(mut request: Value, members: Value) -> Value {
    if let (Some(request), Value::Object(members)) = (request.as_object_mut(), members) {
        request.extend(members);
    }
    request
}

impl Exec {
    pub fn ask(agent: &Client, request: &Value) -> Try<Self> {
        let answer = agent.ask("POST", "/1.0/exec", &request.to_string())?;
        Self::of(&answer)
    }

    /// Returns the operation that an answer has created.
    pub fn of(answer: &Answer) -> Try<Self> {
        if answer.status != 202 {
            return Err(format!("POST /1.0/exec: {}", answer.short()));
        }
        let made = answer.metadata();
        let id = made["id"].as_str().ok_or("an operation without an id")?;
        Ok(Self { operation: format!("/1.0/operations/{id}"), made })
    }

    pub fn target(&self, name: &str) -> String {
        let secret = self.made["metadata"]["fds"][name].as_str().unwrap_or_default();
        format!("{}/websocket?secret={secret}", self.operation)
    }

    pub fn socket(&self, agent: &Client, name: &str) -> Try<Ws> {
        Ws::open(agent, &self.target(name)).map_err(|error| format!("socket {name}: {error}"))
    }

    pub fn connect(self, agent: &Client) -> Try<Running> {
        let control = self.socket(agent, "control")?;
        let stdin = self.socket(agent, "0")?;
        let has = self.made["metadata"]["fds"]["1"].is_string();
        let other = |name| if has { self.socket(agent, name).map(Some) } else { Ok(None) };
        let (out, err) = (other("1")?, other("2")?);
        Ok(Running { exec: self, control, stdin, out, err })
    }

    pub fn ended(&self, agent: &Client, limit: Duration) -> Try<Value> {
        let ended = |operation: &Value| operation["status_code"].as_u64() >= Some(200);
        let look = || match agent.get(&self.operation) {
            Ok(operation) => ended(&operation).then_some(Ok(operation)),
            Err(why) => Some(Err(why)),
        };
        found(limit, look).unwrap_or_else(|| Err("the command did not end in time".into()))
    }

    pub fn code(&self, agent: &Client, limit: Duration) -> Try<i64> {
        let operation = self.ended(agent, limit)?;
        let code = operation["metadata"]["return"].as_i64();
        code.ok_or_else(|| {
            format!("no exit code, but {:?}", operation["err"].as_str().unwrap_or(""))
        })
    }
}

impl Running {
    pub fn start(agent: &Client, request: &Value) -> Try<Self> {
        Exec::ask(agent, request)?.connect(agent)
    }

    /// Closes the command's input, reads all its output and waits for its exit code.
    pub fn finish(mut self, agent: &Client) -> Try<Done> {
        let streams = self.streams();
        let code = self.exec.code(agent, TIMEOUT)?;
        let (out, err) = match streams {
            Ok(streams) => streams,
            // A command that could not be run has no output, and its sockets may be closed.
            Err(_) if [126, 127].contains(&code) => (Vec::new(), Vec::new()),
            Err(error) => return Err(error),
        };
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Done { code, out: text(out), err: text(err) })
    }

    fn streams(&mut self) -> Try<(Vec<u8>, Vec<u8>)> {
        let Some(out) = &mut self.out else {
            let out = self.stdin.output()?;
            // The agent also waits for our barrier (P§4.1).
            self.stdin.barrier()?;
            return Ok((out, Vec::new()));
        };
        // A command that has ended takes no more input, and its agent may have hung up.
        let _ended = self.stdin.barrier();
        Ok((out.output()?, self.err.as_mut().map_or(Ok(Vec::new()), Ws::output)?))
    }

    pub fn output(&mut self) -> Try<Vec<u8>> {
        self.out.as_mut().map_or(Ok(Vec::new()), Ws::output)
    }

    pub fn tell(&mut self, message: &Value) -> Try {
        self.control.text(&message.to_string())
    }

    pub fn signal(&mut self, number: i32) -> Try {
        self.tell(&json!({"command": "signal", "args": null, "signal": number}))
    }
}

pub fn run(agent: &Client, request: &Value, input: &[u8]) -> Try<Done> {
    let mut running = Running::start(agent, request)?;
    // The output proves what has arrived, so an error here does not matter.
    let _ended = running.stdin.binary(input);
    running.finish(agent)
}

/// The output of a script that must succeed, without its last newline.
pub fn output(agent: &Client, request: &Value) -> Try<String> {
    let done = run(agent, request, b"")?;
    if done.code == 0 {
        Ok(done.out.trim_end().to_owned())
    } else {
        Err(format!("exit code {}: {}{}", done.code, done.out, done.err))
    }
}
