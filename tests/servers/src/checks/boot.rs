//! Starts and stops of the instance.

use super::devices::{in_guest, plug, unplug};
use super::life::{During, GONE, report_ready, right};
use crate::prelude::*;
use crate::report::launch;
use crate::setup::{FIRST_IN_GUEST, nic};

group! {
    "boot":
    restart, clean_stop_start_with_devices, stop_during_command, forced_stop_during_command,
    guest_powers_off, stateful_stop;
    "others": copy, publish, two_projects
}

fn boot_id(world: &World) -> Try<String> {
    world.sh("cat /proc/sys/kernel/random/boot_id")
}

fn stopped(world: &World) -> Try<bool> {
    Ok(world.status()? == "Stopped")
}

pub(super) fn start(world: &World) -> Try<f64> {
    world.ok(&["start", VM])?;
    world.agent_of(VM)
}

pub(super) fn stop(world: &World, how: &[&str]) -> Try<f64> {
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
    // On Incus, use a NIC without a bridge: the instance already has one on the only bridge.
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
    // A directory that was configured from the start cannot be unplugged: QEMU takes longer than
    // Incus' 10 s, even with Incus' own agent.
    stop(world, &[])?;
    let gone = unplug(world, "share1").and_then(|()| unplug(world, "lan"));
    start(world)?;
    let (took, line) = seen?;
    gone?;
    Ok(format!("stopped in {stopped} s, agent {took} s after the start; {line}; lan7 has MTU 1400"))
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

fn guest_powers_off(world: &World) -> Seen {
    // The answer may get lost.
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
    // Always restore the initial state.
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
    let behind = right(world)?;
    Ok(format!("stopped in {stopped} s, agent {took} s after the start; the clock {behind}"))
}

fn exec(world: &World, project: &str, instance: &str, words: &[&str]) -> Try<Output> {
    let with = ["--project", project, "exec", instance, "-T", "--"];
    world.cli(&[&with, words].concat()).code(0)
}

/// Replaces the first instance with another one, calls `look`, and restores the first.
fn instead(
    world: &World,
    make: &[&[&str]],
    look: impl FnOnce() -> Seen,
    unmake: &[&[&str]],
) -> Seen {
    let all = |commands: &[&[&str]]| -> Try {
        for words in commands {
            world.cli(words).within(world.limit(300)).text()?;
        }
        Ok(())
    };
    stop(world, &[])?;
    let seen = all(make).and_then(|()| look());
    all(unmake)?;
    start(world)?;
    seen
}

fn is_itself(world: &World, name: &str) -> Seen {
    let took = world.agent_of(name)?;
    let text = |words: &[&str]| -> Try<String> {
        Ok(exec(world, "default", name, words)?.text().trim().to_owned())
    };
    same("the host name", text(&["hostname"])?, name)?;
    has(&text(&["mote-agent", "metadata"])?, &format!("local-hostname: {name}"))?;
    Ok(format!("agent {took} s after the start"))
}

fn copy(world: &World) -> Seen {
    let make: &[&[&str]] = &[&["copy", VM, "vm2"], &["start", "vm2"]];
    instead(world, make, || is_itself(world, "vm2"), &[&["delete", "-f", "vm2"]])
}

fn publish(world: &World) -> Seen {
    let launch = launch(world, "published", "vm3");
    let launch: Vec<_> = launch.iter().map(String::as_str).collect();
    let make: &[&[&str]] = &[&["publish", VM, "--alias", "published"], &launch];
    let unmake: &[&[&str]] = &[&["delete", "-f", "vm3"], &["image", "delete", "published"]];
    instead(world, make, || is_itself(world, "vm3"), unmake)
}

/// Creates an instance of the same name in another project, with other user-data.
fn two_projects(world: &World) -> Seen {
    // Incus refuses the same name twice on a network: there the instance has no NIC, as the project
    // has profiles of its own.
    let (off, disk): (&[&str], &[&str]) = match world.server {
        Server::Incus | Server::Incus60 => (&[], &["-s", "default"]),
        Server::Lxd => (&["-c", "features.profiles=false"], &[]),
    };
    let create = [&["project", "create", "second", "-c", "features.images=false"], off].concat();
    let words = launch(world, world.agent.name(), VM);
    let mut launch = vec!["--project", "second"];
    launch.extend(words.iter().map(String::as_str).chain(disk.iter().copied()));
    let make: &[&[&str]] = &[&create, &launch];
    let look = || {
        let took = world.agent_of(&format!("{VM}?project=second"))?;
        // Set the key only now, because LXD 5.0.2 refuses that while it waits for an agent.
        let greeting = "user.greeting=hello from there";
        world.ok(&["--project", "second", "config", "set", VM, greeting])?;
        let there = exec(world, "second", VM, &["mote-agent", "get", "user.greeting"])?.text();
        same("the greeting there", there.trim(), "hello from there")?;
        Ok(format!("agent {took} s after the start"))
    };
    let delete: &[&[&str]] =
        &[&["--project", "second", "delete", "-f", VM], &["project", "delete", "second"]];
    instead(world, make, look, delete)
}
