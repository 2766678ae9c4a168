//! The end and return of the agent and of the server.

use super::devices::{in_guest, plug, unplug};
use crate::prelude::*;
use crate::setup::knows_vms;

group! {
    "life":
    agent_killed, agent_ends_during_command, pause_and_resume, policy, upgrade, server_killed,
    server_restarted;
    "hotplug":
    limits_cpu [is_incus], limits_memory [is_incus], nic_plugged_in [is_incus],
    clock_after_pause
}

/// Limit for the server to see a killed agent again on a machine without emulation: a second until
/// the service restarts it, and one for the rest.
const BACK: u64 = 2;

pub(super) fn agents_pid(world: &World) -> Try<String> {
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
    // The measured time contains two execs, whose time is subtracted.
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
    // This command is running, too, so its answer may get lost.
    let _answer = world.exec(&["kill", "-TERM", &was]).run();
    let ended = during.end(world, GONE);
    world.until("another agent", 60, || Ok(agents_pid(world)? != was))?;
    ended
}

fn pause_and_resume(world: &World) -> Seen {
    world.ok(&["pause", VM])?;
    same("the status", world.status()?, "Frozen")?;
    thread::sleep(Duration::from_secs(2));
    world.ok(&[world.server.resume(), VM])?;
    let hi = || Ok(world.exec(&["echo", "hi"]).text()? == "hi\n");
    let took = world.until("an answer", 30, hi)?;
    Ok(format!("answers after {took} s; {}", world.status()?))
}

/// docs/how-to/restrict-the-host.md: SIGHUP applies the policy. Root with group 1000 lifts it.
fn policy(world: &World) -> Seen {
    let policy =
        "features: {exec: {users: [0, 1000], groups: [1000]}, guestapi: true, state: true}";
    let reload = "kill -HUP $(cat /run/agent.pid)";
    let exec =
        |user, words: &[&str]| world.cli(&[&["exec", VM, "-T", "--user", user], words].concat());
    let pull = || world.cli(&["file", "pull", &format!("{VM}/etc/hostname"), "-"]).run();
    world.sh(&format!("echo '{policy}' >/etc/mote-agent.yml; {reload}"))?;
    let files = world.until("no files", 20, || Ok(pull()?.code != 0)).and_then(|_| pull());
    let refused = exec("1000", &["id"]).run();
    let allowed = exec("1000", &["--group", "1000", "id"]).text();
    let lift = format!("rm /etc/mote-agent.yml; {reload}");
    exec("0", &["--group", "1000", "--", "sh", "-c", &lift]).code(0)?;
    world.until("files again", 20, || Ok(pull()?.code == 0))?;
    let (files, refused) = (files?, refused?);
    has(&refused.said(), "does not allow exec with group 0")?;
    has(&allowed?, "uid=1000(user) gid=1000(user)")?;
    Ok(format!("{}; {}", files.said(), refused.said()))
}

/// docs/how-to/upgrade.md: a new program waits for an open shell, then continues in the same
/// process. No call is refused meanwhile.
fn upgrade(world: &World) -> Seen {
    report_ready(world)?;
    let (was, status) = (agents_pid(world)?, world.status()?);
    let mut shell = world.terminal(&["shell", VM])?;
    shell.until("# ")?;
    let replace = "sleep 4321 >/dev/null 2>&1 </dev/null & echo $! >/run/sleep
        cp /sbin/mote-agent /sbin/newer; mv /sbin/newer /sbin/mote-agent; kill -HUP $(cat /run/agent.pid)";
    world.sh(replace)?;
    let waits = "program: restarts when no host command is running";
    has(&world.sh("mote-agent status")?, waits)?;
    shell.say("exit\r")?;
    shell.end()?;
    let mut refused = Ok(());
    let took = world.until_each(BOOTING * world.slow, "the new program", 90, || {
        let program = world.sh("readlink /proc/$(cat /run/agent.pid)/exe");
        refused = refused.clone().and(program.clone().map(drop));
        Ok(!program?.contains("deleted"))
    })?;
    refused?;
    same("pid and status", (agents_pid(world)?, world.status()?), (was, status))?;
    world.sh("kill $(cat /run/sleep)")?;
    Ok(format!("{waits}; {took} s after the shell's end"))
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

pub(super) fn report_ready(world: &World) -> Try {
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
    thread::sleep(Duration::from_secs(1));
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

/// Exit code of a client whose command was lost with its agent or instance, if the server treats
/// the instance as a container: 128 plus SIGHUP (docs/protocol/exec.md, "When the agent ends").
pub(super) const GONE: i32 = 129;
/// Time after the command's first output until the server waits for its end.
const SETTLED: Duration = Duration::from_secs(2);

/// A command with pipes and one on a terminal, both endless.
pub(super) struct During {
    pipes: Background,
    terminal: Terminal,
}

impl During {
    pub(super) fn begin(world: &World) -> Try<Self> {
        let script = "echo begun; exec sleep 4321";
        // The client's messages are reported together with its exit code.
        let first = ["sh", "-c", "exec \"$@\" 2>&1", "sh", world.server.cli(), "exec", VM, "-T"];
        let mut pipes = world.run(&[&first[..], &["--", "sh", "-c", script]].concat()).start()?;
        same("the first line", pipes.line()?, "begun".to_owned())?;
        let mut terminal = world.exec_on_terminal(&["sh", "-c", script])?;
        terminal.until("begun")?;
        thread::sleep(SETTLED);
        Ok(Self { pipes, terminal })
    }

    /// Requires this exit code of both clients; returns the codes and the first client's output.
    pub(super) fn end(self, world: &World, wanted: i32) -> Seen {
        let ended = self.pipes.end(world.limit(30))?;
        let (terminal, _) = self.terminal.end()?;
        let said = format!("{} and {terminal}; {}", ended.code, ended.said());
        if [ended.code, terminal] == [wanted; 2] { Ok(said) } else { Err(said) }
    }
}

// LXD 5.0.2 changes neither limits nor NICs while an instance runs.
/// Length of a pause: long enough that a clock which is behind by it is not mistaken for a slow
/// `exec`. Incus 7.0.2 closes the connection of a running command after 30 s of silence, so a pause
/// of 40 s ended the client.
const PAUSE: Duration = Duration::from_secs(18);
/// Upper bound of the clock's error after a resume. `date` prints whole seconds.
const RIGHT: u64 = 2;
/// Upper bound of the error where the guest can read the host's clock, milliseconds.
const NEAR: f64 = 50.0;
/// Number of readings of the guest's clock, of which the quickest is used.
const READINGS: usize = 40;
/// MiB to take from the instance, which has 384.
const LESS: u64 = 256;

fn limits_cpu(world: &World) -> Seen {
    let online = || world.sh("cat /sys/devices/system/cpu/online");
    same("before", online()?.trim(), "0")?;
    let seen = world.with_key("limits.cpu", "2", Some("1"), || {
        let took = world.until("another CPU in use", 10, || Ok(online()?.trim() == "0-1"))?;
        Ok(format!("in use {took} s after the command"))
    })?;
    let gone = world.until("one CPU", 20, || Ok(online()?.trim() == "0"))?;
    Ok(format!("{seen}; gone {gone} s after the one that took it"))
}

fn limits_memory(world: &World) -> Seen {
    let total = || -> Try<u64> {
        let text = world.sh("sed -n 's/^MemTotal: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo")?;
        text.trim().parse().map_err(|_| format!("MemTotal: {text}"))
    };
    let before = total()?;
    let seen = world.with_key("limits.memory", &format!("{LESS}MiB"), Some("384MiB"), || {
        let took = world.until("less memory", 30, || Ok(total()? < LESS * 1024))?;
        Ok(format!("taken {took} s after the command"))
    })?;
    let back = world.until("the memory is back", 30, || Ok(total()? == before))?;
    Ok(format!("{seen}, back {back} s after the other"))
}

/// A NIC that is hot-plugged with the server's command gets its name and MTU.
fn nic_plugged_in(world: &World) -> Seen {
    let add =
        ["config", "device", "add", VM, "later", "nic", "nictype=p2p", "name=lan9", "mtu=1400"];
    world.ok(&add)?;
    let mtu = || world.sh("cat /sys/class/net/lan9/mtu 2>/dev/null || ls /sys/class/net");
    let named = world.until("lan9", 10, || Ok(mtu()?.trim() == "1400"));
    let last = mtu();
    unplug(world, "later")?;
    let gone = world.until("no lan9", 20, || Ok(mtu()?.trim() != "1400"));
    let named = named.map_err(|why| format!("{why}; {}", last.unwrap_or_default().trim()))?;
    Ok(format!("named {named} s after the command, gone {} s after the other", gone?))
}

/// Checks that the first command sees the correct time: the agent detects a resume before it runs
/// one.
pub(super) fn right(world: &World) -> Seen {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let before = now();
    let text = world.sh("date +%s")?;
    let guest: u64 = text.trim().parse().map_err(|_| "no seconds from date".to_owned())?;
    if guest + RIGHT < before {
        return Err(format!("{} s behind in the first command", before - guest));
    }
    Ok(format!("right in the first command, {} s after it began", now() - before))
}

/// Returns the guest clock's lag in milliseconds, and its uncertainty: half the time of the
/// quickest reading. A command that is already running reports the kernel's time.
fn lag_closely(world: &World) -> Try<(f64, f64)> {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let script = "while read -r line; do echo $EPOCHREALTIME; done";
    let mut clock = world.exec(&["sh", "-c", script]).talk()?;
    let mut best = (0.0, f64::INFINITY);
    for _ in 0..READINGS {
        let before = now();
        let text = clock.answer()?;
        let after = now();
        let guest: f64 = text.trim().parse().map_err(|_| format!("no time: {text}"))?;
        let half = (after - before) * 500.0;
        if half < best.1 {
            best = ((f64::midpoint(before, after) - guest) * 1000.0, half);
        }
    }
    Ok(best)
}

/// A running command continues. With KVM's clock device the guest steps its clock from the host's,
/// accurate to milliseconds.
fn clock_after_pause(world: &World) -> Seen {
    let mut command =
        world.exec(&["sh", "-c", "while read -r line; do echo =$line; done"]).talk()?;
    same("a command", command.answer()?, "=")?;
    world.ok(&["pause", VM])?;
    thread::sleep(PAUSE);
    world.ok(&[world.server.resume(), VM])?;
    let seen = right(world)?;
    let (lag, wrong) = lag_closely(world)?;
    if lag.abs() > NEAR + wrong {
        return Err(format!("{lag:.1} ± {wrong:.1} ms behind"));
    }
    same("a command from before the pause", command.answer()?, "=")?;
    // The pattern excludes the line that logs this command itself.
    let log = world
        .sh("sed -n 's/^[a-z: ]*VM resumed (\\([a-z]*\\)): /\\1. /p' /run/agent.log | tail -n 1")?;
    Ok(format!("{seen}; then {lag:.1} ± {wrong:.1} ms behind; {}", log.trim()))
}
