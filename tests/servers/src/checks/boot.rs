//! Starts and stops of the instance.

use std::time::Instant;

use super::devices::{in_guest, plug, unplug};
use super::group;
use super::hotplug;
use super::life::report_ready;
use super::life::{During, GONE};
use crate::server::Server;
use crate::setup::{FIRST_IN_GUEST, nic};
use crate::terminal::Terminal;
use crate::world::{Seen, VM, World, has, round, same};

group! {
    "boot":
    restart, clean_stop_start_with_devices, forced_stop, stop_during_command,
    forced_stop_during_command, console, start_with_console, guest_powers_off, stateful_stop
}

fn boot_id(world: &World) -> Result<String, String> {
    world.sh("cat /proc/sys/kernel/random/boot_id")
}

fn stopped(world: &World) -> Result<bool, String> {
    Ok(world.status()? == "Stopped")
}

pub(super) fn start(world: &World) -> Result<f64, String> {
    world.ok(&["start", VM])?;
    world.agent_of(VM)
}

pub(super) fn stop(world: &World, how: &[&str]) -> Result<f64, String> {
    let begun = Instant::now();
    world.cli(&[&["stop", VM], how].concat()).within(world.limit(300)).text()?;
    same("the status", world.status()?, "Stopped")?;
    Ok(round(begun.elapsed()))
}

fn restart(world: &World) -> Seen {
    report_ready(world)?;
    let was = boot_id(world)?;
    let begun = Instant::now();
    world.cli(&["restart", VM]).within(world.limit(150)).text()?;
    let returned = round(begun.elapsed());
    let took = world.until("another boot", 120, || Ok(boot_id(world)? != was))?;
    same("the status after the boot", world.status()?, "Running")?;
    Ok(format!("done after {returned} s, agent {took} s later"))
}

/// A NIC with a name and an MTU, and a directory, both configured from the start.
fn clean_stop_start_with_devices(world: &World) -> Seen {
    let stopped = stop(world, &[])?;
    plug(world, "share1", "/mnt/share1", &[])?;
    // On Incus without a bridge, because the instance already has a NIC on the only one.
    let link = if world.server.is_incus() { &["nictype=p2p"] } else { nic(world.server) };
    let nic = ["config", "device", "add", VM, "lan", "nic", "name=lan7", "mtu=1400"];
    let added = world.ok(&[&nic, link].concat());
    let seen = added.and_then(|_| start(world)).and_then(|took| {
        let (_, line) = in_guest(world, "/mnt/share1")?;
        let nics = world.sh("cat /sys/class/net/lan7/mtu; ls /sys/class/net")?;
        same("the MTU of lan7", nics.lines().next(), Some("1400"))?;
        has(&nics, "eth0")?;
        Ok((took, line))
    });
    // A directory that was configured from the start stays: QEMU does not unplug it within Incus'
    // 10 s, with Incus' own agent neither.
    stop(world, &[])?;
    let gone = unplug(world, "share1").and_then(|()| unplug(world, "lan"));
    start(world)?;
    let (took, line) = seen?;
    gone?;
    Ok(format!("stopped in {stopped} s, agent {took} s after the start; {line}; lan7 has MTU 1400"))
}

fn forced_stop(world: &World) -> Seen {
    stop(world, &["-f"])?;
    Ok(format!("agent {} s after the start", start(world)?))
}

fn during_command(world: &World, how: &[&str], code: i32) -> Seen {
    let during = During::begin(world)?;
    let stopped = stop(world, how);
    let ended = during.end(world, code);
    start(world)?;
    stopped?;
    ended
}

fn stop_during_command(world: &World) -> Seen {
    during_command(world, &[], GONE)
}

/// The server only sees its connection break, with any agent: 255 (docs/protocol/exec.md).
fn forced_stop_during_command(world: &World) -> Seen {
    during_command(world, &["-f"], 255)
}

/// Types Ctrl-a q one by one: the client examines only the first byte of each read.
fn detach(world: &World, terminal: &Terminal) -> Result<(), String> {
    terminal.say("\x01")?;
    std::thread::sleep(world.limit(1));
    terminal.say("q")
}

fn console(world: &World) -> Seen {
    let mut terminal = world.terminal(&["console", VM])?;
    terminal.say("\r")?;
    terminal.until("# ")?;
    terminal.say("echo console$((40+2))\r")?;
    terminal.until("console42")?;
    detach(world, &terminal)?;
    same("the exit code", terminal.end()?.0, 0)?;
    Ok(String::new())
}

fn start_with_console(world: &World) -> Seen {
    stop(world, &[])?;
    let mut terminal = world.terminal(&["start", "--console", VM])?;
    let seen = terminal.until("inner: init");
    detach(world, &terminal)?;
    let ended = terminal.end();
    let took = world.agent_of(VM)?;
    seen?;
    ended?;
    Ok(format!("the guest's first line is seen; agent {took} s later"))
}

fn guest_powers_off(world: &World) -> Seen {
    // The answer may be lost.
    let _answer = world.sh("echo >/run/power");
    let took = world.until("Stopped", 60, || stopped(world))?;
    start(world)?;
    Ok(format!("stopped after {took} s"))
}

fn stateful_stop(world: &World) -> Seen {
    stop(world, &[])?;
    world.ok(&["config", "set", VM, "migration.stateful", "true"])?;
    world.ok(&["config", "device", "override", VM, "root", "size.state=1GiB"])?;
    let seen = stateful(world);
    // Restores the initial state in any case.
    if !stopped(world)? {
        stop(world, &["-f"])?;
    }
    world.ok(&["config", "unset", VM, "migration.stateful"])?;
    start(world)?;
    seen
}

fn stateful(world: &World) -> Seen {
    start(world)?;
    let was = boot_id(world)?;
    world.sh("echo kept >/tmp/kept")?;
    if world.server == Server::Lxd {
        world.sh(&format!("umount {FIRST_IN_GUEST}"))?; // QEMU does not migrate with a 9p directory mounted
    }
    let stopped = stop(world, &["--stateful"])?;
    let begun = Instant::now();
    world.cli(&["start", VM]).within(world.limit(300)).text()?;
    world.agent_of(VM)?;
    same("the boot", boot_id(world)?, was)?;
    same("a file", world.sh("cat /tmp/kept")?, "kept\n")?;
    let took = round(begun.elapsed());
    let behind = hotplug::right(world)?;
    Ok(format!("stopped in {stopped} s, agent {took} s after the start; the clock {behind}"))
}
