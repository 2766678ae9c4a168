//! What the server changes while the instance runs, and what the guest makes of it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::check::Check;
use super::devices::unplug;
use crate::world::{Seen, VM, World, has, round, same};

pub(super) const CHECKS: &[Check] = &[
    // LXD 5.0.2 changes neither while an instance runs.
    Check::new("follow", "limits_cpu", limits_cpu).incus(),
    Check::new("follow", "limits_memory", limits_memory).incus(),
    Check::new("follow", "nic_plugged_in", nic_plugged_in).incus(),
    Check::new("follow", "clock_after_pause", clock_after_pause),
    Check::new("follow", "ptp", ptp),
];

/// So long a pause: what a clock lags by cannot be taken for the time that an `exec` takes.
const PAUSE: Duration = Duration::from_secs(40);
/// So far from the host's clock at most, and within this many seconds of running again. `date` prints whole seconds.
const RIGHT: i64 = 2;
const SOON: u64 = 10;
/// So long a pause where milliseconds are looked at.
const SHORT: Duration = Duration::from_secs(10);
/// So far from the host's clock at most where the guest can read that, milliseconds.
const NEAR: f64 = 50.0;
/// Readings of the guest's clock, of which the quickest counts.
const READINGS: usize = 40;
/// MiB that are taken from the instance, which has 384.
const LESS: u64 = 256;

/// Sets a key of the instance while it runs, looks, and sets it back whatever was seen.
fn with_set(world: &World, key: &str, value: &str, was: &str, look: impl FnOnce() -> Seen) -> Seen {
    world.cli(&["config", "set", VM, key, value]).within(world.limit(120)).text()?;
    let seen = look();
    world.cli(&["config", "set", VM, key, was]).within(world.limit(120)).text()?;
    seen
}

fn limits_cpu(world: &World) -> Seen {
    let online = || world.sh("cat /sys/devices/system/cpu/online");
    same("before", online()?.trim(), "0")?;
    let seen = with_set(world, "limits.cpu", "2", "1", || {
        let took = world.until("another CPU in use", 20, || Ok(online()?.trim() == "0-1"))?;
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
    let (less, was) = (format!("{LESS}MiB"), "384MiB");
    let seen = with_set(world, "limits.memory", &less, was, || {
        let took = world.until("less memory", 30, || Ok(total()? < LESS * 1024))?;
        Ok(format!("taken {took} s after the command"))
    })?;
    let back = world.until("the memory is back", 30, || Ok(total()? == before))?;
    Ok(format!("{seen}, back {back} s after the other"))
}

/// A NIC that is plugged in gets the name and MTU that it has at the server.
fn nic_plugged_in(world: &World) -> Seen {
    let add =
        ["config", "device", "add", VM, "later", "nic", "nictype=p2p", "name=lan9", "mtu=1400"];
    world.cli(&add).within(world.limit(120)).text()?;
    let mtu = || world.sh("cat /sys/class/net/lan9/mtu 2>/dev/null || ls /sys/class/net");
    let named = world.until("lan9", 20, || Ok(mtu()?.trim() == "1400"));
    let last = mtu();
    unplug(world, "later")?;
    let gone = world.until("no lan9", 20, || Ok(mtu()?.trim() != "1400"));
    let named = named.map_err(|why| format!("{why}; {}", last.unwrap_or_default().trim()))?;
    Ok(format!("named {named} s after the command, gone {} s after the other", gone?))
}

/// By how many seconds the guest's clock lags behind the host's.
fn lag(world: &World) -> Result<i64, String> {
    let guest: i64 =
        world.sh("date +%s")?.trim().parse().map_err(|_| "no seconds from date".to_owned())?;
    let host = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Ok(host.cast_signed() - guest)
}

fn clock_after_pause(world: &World) -> Seen {
    let before = lag(world)?;
    world.ok(&["pause", VM])?;
    std::thread::sleep(PAUSE);
    world.ok(&[world.server.resume(), VM])?;
    Ok(format!("{before} s behind before; {} of running again", right(world, before)?))
}

/// Waits until the guest's clock lags by no more than it did.
pub(super) fn right(world: &World, before: i64) -> Seen {
    let begun = Instant::now();
    loop {
        let now = lag(world)?;
        if (now - before).abs() <= RIGHT {
            return Ok(format!("{now} s behind within {} s", round(begun.elapsed())));
        }
        if begun.elapsed() > world.limit(SOON) {
            return Err(format!("{now} s behind, {} s after it ran again", round(begun.elapsed())));
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// By how many milliseconds the guest's clock lags behind the host's, and how wrong that may be: half the time of
/// the quickest reading. A command that runs already answers with the kernel's time.
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

/// With KVM's device the guest reads the host's clock itself: after a pause its own is right to milliseconds.
fn ptp(world: &World) -> Seen {
    let (before, _) = lag_closely(world)?;
    world.ok(&["pause", VM])?;
    std::thread::sleep(SHORT);
    world.ok(&[world.server.resume(), VM])?;
    let begun = Instant::now();
    let (lag, wrong, took) = loop {
        let took = begun.elapsed();
        let (lag, wrong) = lag_closely(world)?;
        if lag.abs() <= NEAR && wrong <= NEAR {
            break (lag, wrong, took);
        }
        if took > world.limit(SOON) {
            let took = round(took);
            return Err(format!("{lag:.1} ± {wrong:.1} ms behind, {took} s after it ran again"));
        }
    };
    // Not the line of a command that has these words.
    let log = world.sh("sed -n 's/^[a-z: ]*running again: //p' /run/agent.log | tail -n 1")?;
    has(&log, "by the host's clock")?;
    let device = world.sh("cat /sys/class/ptp/ptp*/clock_name")?;
    Ok(format!(
        "{before:.1} ms behind before; {lag:.1} ± {wrong:.1} ms within {} s of running again; {}; {}",
        round(took),
        log.trim(),
        device.trim()
    ))
}
