//! Port-forward (P§4.7), and agents that are stopped, killed or provoked (P§1.3, P§2).

use crate::conform::prelude::*;

const FORWARD: Group = Group::new("Port-forward", "P§4.7");
const LIFE: Group = Group::new("Life", "P§1.3");

pub(super) const ALL: &[Check] = &[
    FORWARD.incus().is("bytes go to a port in the guest and come back", |agent| {
        listen(agent, 7001, "cat")?;
        let (answer, mut wire) = forward(agent, "tcp", &json!({"port": 7001}))?;
        same("status", answer.short(), "101")?;
        same("Upgrade", answer.field("upgrade"), "tcp")?;
        let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        wire.send(&bytes)?;
        hold("other bytes come back", wire.exactly(bytes.len())? == bytes)
    }),
    FORWARD.incus().is("what the other side says first is not lost", |agent| {
        listen(agent, 7002, "date")?;
        let (answer, mut wire) =
            forward(agent, "tcp", &json!({"address": "127.0.0.1", "port": 7002}))?;
        same("status", answer.short(), "101")?;
        let text = String::from_utf8_lossy(&wire.rest()?).into_owned();
        hold("nothing comes", text.contains(':'))
    }),
    FORWARD.incus().is("a closed port is 500, in these words", |agent| {
        let (answer, _wire) = forward(agent, "tcp", &json!({"port": 7003}))?;
        answer.is(500)?;
        let words = "500 Failed connecting to \"127.0.0.1\" port 7003: ";
        hold(format!("it is `{}`", answer.short()), answer.short().starts_with(words))
    }),
    FORWARD.incus().is("port 0 and a wrong upgrade are 400", |agent| {
        same("it", forward(agent, "tcp", &json!({"port": 0}))?.0.short(), "400 Invalid port 0")?;
        let (answer, _wire) = forward(agent, "udp", &json!({"port": 7003}))?;
        same("it", answer.short(), "400 Missing or invalid upgrade header")
    }),
    LIFE.of("P§2.2").is("the host sees STARTED, then CONNECTED", |agent| {
        let log = locked(&agent.host).log();
        let place = |mark: &str| log.find(mark).ok_or_else(|| format!("no {mark}"));
        let started = place("agent STARTED")?;
        hold("it does not", is(agent, "CONNECTED") && started > 0)
    }),
    LIFE.alone().is("SIGTERM: the host sees STOPPED, exit code 0", |agent| {
        let _sent = agent.guest("kill -TERM $(cat /run/agent.pid)")?;
        let ended =
            |agent: &Agent| agent.sh("grep -q 'ended with exit code' /run/agent.log").0 == 0;
        agent.wait("its end", SOON, ended)?;
        let code =
            agent.guest("grep 'ended with exit code' /run/agent.log | tail -1 | sed 's/.* //'")?;
        same("the exit code", code, "0")?;
        agent.wait("STOPPED", TURN, |agent| is(agent, "STOPPED"))
    }),
    LIFE.alone().is("started again, the host sees it, and it serves", |agent| {
        start(agent)?;
        same("the output", run(agent, &plain(&["echo", "hi"]), b"")?.out, "hi\n")
    }),
    LIFE.alone().is("killed and started again, it serves again", |agent| {
        kill(agent)?;
        start(agent)
    }),
    LIFE.alone().is("`agent.conf` is enough for devlxd: no PUT is needed", |agent| {
        let _set = agent.host(&["fault", NAME, "deny-put"])?;
        kill(agent)?;
        let _gone = agent.sh(&format!("rm -f {}", agent.socket()));
        let _started = agent.guest(START)?;
        agent.forget();
        let there = |agent: &Agent| {
            agent
                .devlxd("GET", "/1.0/config/user.foo", "")
                .is_ok_and(|answer| answer.body == b"bar")
        };
        let claim = agent.wait("devlxd", SOON * 2, there);
        let _calm = agent.host(&["fault", NAME, "none"])?;
        claim
    }),
    LIFE.of("P§4.1").alone().is("an empty command is 400, and the agent lives", |agent| {
        let answer = agent.ask("POST", "/1.0/exec", &plain(&[]).to_string());
        let claim = answer.map_err(Into::into).and_then(|answer| answer.is(400));
        claim?;
        agent.ask("GET", "/1.0", "")?.is(200)
    }),
];

fn forward(agent: &Agent, upgrade: &str, body: &Value) -> Try<(Answer, Wire)> {
    let mut wire = agent.connect()?;
    let fields = format!("Connection: Upgrade\r\nUpgrade: {upgrade}\r\n");
    let answer = wire.ask("POST", "/1.0/port-forward", &fields, body.to_string().as_bytes())?;
    Ok((answer, wire))
}

/// Starts a listener in the guest that runs a command for each connection.
fn listen(agent: &Agent, port: u16, command: &str) -> Try {
    let _started = agent.guest(&format!("(nc -ll -p {port} -e {command}) >/dev/null 2>&1 &"))?;
    let look = |agent: &Agent| agent.sh(&format!("netstat -ltn | grep -q :{port}")).0 == 0;
    agent.wait("the listener", SOON, look).map_err(|_| "no listener".to_owned())
}

fn is(agent: &Agent, state: &str) -> bool {
    agent.seen_by_host()["state"] == state
}

const START: &str = "start-stop-daemon -S -b -x /run/agent.start";
/// Limit for the host to learn of a change: two announcements 5 s apart, and its poll every 10 s.
const TURN: Duration = Duration::from_secs(25);

/// Restarts the agent; waits until it answers and the host has heard of it.
fn start(agent: &Agent) -> Claim {
    let _started = agent.guest(START)?;
    agent.forget();
    let serves = |agent: &Agent| agent.ask("GET", "/1.0", "").is_ok_and(|info| info.status == 200);
    agent.wait("`GET /1.0`", TURN, serves)?;
    // STARTED is enough: on a busy machine the host's PUT may take longer than its 3 s.
    agent.wait("STARTED", TURN, |agent| is(agent, "STARTED") || is(agent, "CONNECTED"))
}

fn kill(agent: &Agent) -> Claim {
    let _sent = agent.guest("kill -KILL $(cat /run/agent.pid)")?;
    let gone = |agent: &Agent| agent.sh("kill -0 $(cat /run/agent.pid)").0 != 0;
    agent.wait("its end", SOON, gone)
}
