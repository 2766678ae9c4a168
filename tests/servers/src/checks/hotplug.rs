//! Changes to a running instance, and the guest's reaction.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::devices::unplug;
use super::group;
use crate::world::{Seen, VM, World, same};

// LXD 5.0.2 changes neither limits nor NICs while an instance runs.
group! {
    "hotplug":
    limits_cpu [is_incus], limits_memory [is_incus], nic_plugged_in [is_incus],
    clock_after_pause
}

/// Length of a pause: long enough to distinguish a clock that is behind by it from a slow `exec`.
/// Incus 7.0.2 closes the connection of a running command after 30 s of silence: after a pause of
/// 40 s the client had ended.
const PAUSE: Duration = Duration::from_secs(18);
/// Upper bound of the clock's error in the first command after a resume, seconds. `date` prints
/// whole ones.
const RIGHT: u64 = 2;
/// Upper bound of the error where the guest can read the host's clock, milliseconds.
const NEAR: f64 = 50.0;
/// Readings of the guest's clock. The quickest counts.
const READINGS: usize = 40;
/// MiB taken from the instance, which has 384.
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
    let total = || -> Result<u64, String> {
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

/// A hot-plugged NIC gets its name and MTU at the server.
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
/// quickest reading. A command that already runs answers with the kernel's time.
fn lag_closely(world: &World) -> Result<(f64, f64), String> {
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

/// A running command continues. With KVM's clock device the guest reads the host's clock itself, so
/// its own is exact to milliseconds.
fn clock_after_pause(world: &World) -> Seen {
    let mut command =
        world.exec(&["sh", "-c", "while read -r line; do echo =$line; done"]).talk()?;
    same("a command", command.answer()?, "=")?;
    world.ok(&["pause", VM])?;
    std::thread::sleep(PAUSE);
    world.ok(&[world.server.resume(), VM])?;
    let seen = right(world)?;
    let (lag, wrong) = lag_closely(world)?;
    if lag.abs() > NEAR + wrong {
        return Err(format!("{lag:.1} ± {wrong:.1} ms behind"));
    }
    same("a command from before the pause", command.answer()?, "=")?;
    // Excludes the line of a command that contains these words.
    let log = world
        .sh("sed -n 's/^[a-z: ]*VM resumed (\\([a-z]*\\)): /\\1. /p' /run/agent.log | tail -n 1")?;
    Ok(format!("{seen}; then {lag:.1} ± {wrong:.1} ms behind; {}", log.trim()))
}
