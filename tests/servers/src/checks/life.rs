//! The end and return of the agent and of the server.

use std::time::{Duration, Instant};

use super::devices::{in_guest, plug, unplug};
use super::group;
use crate::run::Background;
use crate::server::Server;
use crate::setup::knows_vms;
use crate::terminal::Terminal;
use crate::world::{Seen, VM, World, round, same};

group! {
    "life":
    agent_killed, agent_ends_during_command, pause_and_resume, snapshot, server_killed,
    server_restarted
}

/// Limit for the server to see a killed agent again on a machine without emulation: a second until
/// the service restarts it, and one for the rest.
const BACK: u64 = 2;

fn agents_pid(world: &World) -> Result<String, String> {
    Ok(world.sh("cat /run/agent.pid")?.trim().to_owned())
}

fn agent_killed(world: &World) -> Seen {
    let was = agents_pid(world)?;
    let begun = Instant::now();
    // The answer may be lost with the agent.
    let _answer = world.exec(&["kill", "-9", &was]).run();
    let killed = begun.elapsed();
    world.until("another agent", 60, || Ok(agents_pid(world)? != was))?;
    let took = begun.elapsed();
    let back = took.checked_sub(killed).unwrap_or_default();
    // It contains two execs, whose time is subtracted.
    let begun = Instant::now();
    agents_pid(world)?;
    let one = begun.elapsed();
    let text = format!("{} s after its death, an exec takes {} s", round(back), round(one));
    let limit = world.limit(BACK) + one;
    if back > limit { Err(format!("{text}: more than {limit:?}")) } else { Ok(text) }
}

fn agent_ends_during_command(world: &World) -> Seen {
    let was = agents_pid(world)?;
    let during = During::begin(world)?;
    // This command is running as well.
    let _answer = world.exec(&["kill", "-TERM", &was]).run();
    let ended = during.end(world, GONE);
    world.until("another agent", 60, || Ok(agents_pid(world)? != was))?;
    ended
}

fn pause_and_resume(world: &World) -> Seen {
    world.ok(&["pause", VM])?;
    same("the status", world.status()?, "Frozen")?;
    std::thread::sleep(Duration::from_secs(2));
    world.ok(&[world.server.resume(), VM])?;
    let hi = || Ok(world.exec(&["echo", "hi"]).text()? == "hi\n");
    let took = world.until("an answer", 30, hi)?;
    Ok(format!("answers after {took} s; {}", world.status()?))
}

fn snapshot(world: &World) -> Seen {
    let [make, delete]: [&[&str]; 2] = if world.server.is_incus() {
        [&["snapshot", "create", VM, "s1"], &["snapshot", "delete", VM, "s1"]]
    } else {
        [&["snapshot", VM, "s1"], &["delete", &format!("{VM}/s1")]]
    };
    world.ok(make)?;
    world.ok(delete)?;
    same("it is alive", world.exec(&["echo", "hi"]).text()?, "hi\n")?;
    Ok(String::new())
}

/// Checks that everything works once the server is back: the agent, which must be the same one, the
/// guest API, and Ready if the server has that status.
fn all_again(world: &World, agent: &str) -> Seen {
    let begun = Instant::now();
    let seen = world.until("the agent", 40, || world.sees_agent(VM))?;
    let greeting =
        || Ok(world.exec(&["mote-agent", "get", "user.greeting"]).text()?.trim() == "hello");
    let guest_api = world.until("the guest API", 40, greeting)?;
    let again = if world.server.has_ready() { "Ready" } else { "Running" };
    let ready = world.until(again, 30, || Ok(world.status()? == again));
    same("the agent was not restarted", agents_pid(world)?, agent)?;
    ready?;
    let all = round(begun.elapsed());
    Ok(format!("agent seen after {seen} s, guest API {guest_api} s later, {again} after {all} s"))
}

/// Has the guest report Ready if the server supports it.
pub(super) fn report_ready(world: &World) -> Result<(), String> {
    if world.server.has_ready() {
        world.exec(&["mote-agent", "ready"]).code(0)?;
    }
    Ok(())
}

fn server_killed(world: &World) -> Seen {
    report_ready(world)?;
    let agent = agents_pid(world)?;
    let name = world.server.service();
    let pid = world.run(&["systemctl", "show", "-p", "MainPID", "--value", name]).text()?;
    world.run(&["kill", "-9", pid.trim()]).code(0)?;
    std::thread::sleep(Duration::from_secs(1));
    // The service may have been restarted already, by itself or through its socket.
    let _none = world.run(&["systemctl", "reset-failed", name]).run();
    world.run(&["systemctl", "start", name]).code(0)?;
    knows_vms(world)?;
    all_again(world, &agent)
}

fn server_restarted(world: &World) -> Seen {
    report_ready(world)?;
    let agent = agents_pid(world)?;
    let restart = ["systemctl", "restart", world.server.service()];
    world.run(&restart).within(world.limit(180)).code(0)?;
    knows_vms(world)?;
    let all = all_again(world, &agent)?;
    // LXD 5.0.2: "Cannot attach directory while instance is running".
    if world.server == Server::Lxd {
        return Ok(all);
    }
    plug(world, "after", "/mnt/after", &[])?;
    let mounted = in_guest(world, "/mnt/after");
    unplug(world, "after")?;
    Ok(format!("{all}; a directory plugged in then: after {} s", mounted?.0))
}

/// A client's exit code when its command's agent or instance is gone, if the server treats it as a
/// container: 128 plus SIGHUP (docs/protocol/exec.md, "When the agent ends").
pub(super) const GONE: i32 = 129;
/// Time after the command's first output until the server waits for its end.
const SETTLED: Duration = Duration::from_secs(2);

/// A command with pipes and one on a terminal, both endless.
pub(super) struct During {
    pipes: Background,
    terminal: Terminal,
}

impl During {
    pub(super) fn begin(world: &World) -> Result<Self, String> {
        let script = "echo begun; exec sleep 4321";
        // The client's messages are reported with its code.
        let first = ["sh", "-c", "exec \"$@\" 2>&1", "sh", world.server.cli(), "exec", VM, "-T"];
        let words = [&first[..], &["--", "sh", "-c", script]].concat();
        let mut pipes = world.run(&words).start()?;
        same("the first line", pipes.line()?, "begun".to_owned())?;
        let mut terminal = world.exec_on_terminal(&["sh", "-c", script])?;
        terminal.until("begun")?;
        std::thread::sleep(SETTLED);
        Ok(Self { pipes, terminal })
    }

    /// Demands this exit code of both clients; returns the codes and what the first client printed.
    pub(super) fn end(self, world: &World, wanted: i32) -> Seen {
        let ended = self.pipes.end(world.limit(30))?;
        let (terminal, _) = self.terminal.end()?;
        let said = format!("{} and {terminal}; {}", ended.code, ended.said());
        if [ended.code, terminal] == [wanted; 2] { Ok(said) } else { Err(said) }
    }
}
