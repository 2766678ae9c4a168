//! The server's API for programs in the instance, through the agent.

use super::devices::{in_guest, plug, unplug};
use super::group;
use crate::world::{Seen, VM, World, has, line_with, same};

group! {
    "guestapi":
    config_and_event, many_events, metadata, metadata_format, cloud_init_keys,
    user_data_escapes, device_event [is_incus], ready [is_incus], last_state_ready [is_incus],
    off_and_on
}

fn get(world: &World, key: &str) -> Result<String, String> {
    Ok(world.exec(&["mote-agent", "get", key]).text()?.trim().to_owned())
}

fn events(world: &World) -> Result<String, String> {
    world.sh("cat /run/events.log || true")
}

/// Restarts the guest's listener after the agent's restart, because events are not kept for absent
/// listeners.
fn listening(world: &World) -> Result<(), String> {
    let mut turn = 0;
    world.until("a listener in the guest", 20, || {
        turn += 1;
        let (key, value) = ("user.listening", format!("{turn}"));
        world.ok(&["config", "set", VM, key, &value])?;
        std::thread::sleep(world.limit(1));
        Ok(events(world)?.lines().rev().take(5).any(|line| line.contains(key)))
    })?;
    Ok(())
}

fn config_and_event(world: &World) -> Seen {
    listening(world)?;
    let (took, line) = world.with_key("user.foo", "bar", None, || {
        same("user.foo", get(world, "user.foo")?, "bar")?;
        let took = world.until("the event", 15, || Ok(events(world)?.contains("user.foo")))?;
        Ok((took, line_with(&events(world)?, "user.foo")?))
    })?;
    let unset = world.exec(&["mote-agent", "get", "user.foo"]).run()?;
    same("an unset key is an error", unset.code != 0, true)?;
    Ok(format!("{line} after {took} s; unset: {}", unset.said()))
}

fn many_events(world: &World) -> Seen {
    listening(world)?;
    for number in 0..10 {
        world.ok(&["config", "set", VM, "user.count", &format!("n{number}.")])?;
    }
    let all = || -> Result<bool, String> {
        let text = events(world)?;
        let mut at = 0;
        for number in 0..10 {
            let Some(next) = text[at..].find(&format!("\"n{number}.\"")) else { return Ok(false) };
            at += next;
        }
        Ok(true)
    };
    let took = world.until("ten events, in order", 15, all)?;
    world.ok(&["config", "unset", VM, "user.count"])?;
    Ok(format!("after {took} s"))
}

fn metadata(world: &World) -> Seen {
    let meta_data = world.exec(&["mote-agent", "metadata"]).text()?;
    has(&meta_data, "instance-id: ")?;
    has(&meta_data, &format!("local-hostname: {VM}"))?;
    has(&world.exec(&["mote-agent", "config"]).text()?, "user.greeting")?;
    has(&world.exec(&["mote-agent", "devices"]).text()?, "\"root\"")?;
    line_with(&meta_data, "instance-id")
}

/// Returns the value of an instance's key in the API.
fn config(world: &World, key: &str) -> Result<String, String> {
    let instance = world.query(&format!("/1.0/instances/{VM}"))?;
    Ok(instance["config"][key].as_str().unwrap_or_default().to_owned())
}

/// Byte by byte, because cloud-init reads it as YAML.
fn metadata_format(world: &World) -> Seen {
    let mine = "mine: \"a: b\"\nlist: [1, 2]\n";
    world.with_key("user.meta-data", mine, None, || {
        let seen = world.exec(&["mote-agent", "metadata"]).text()?;
        let id = config(world, "volatile.cloud-init.instance-id")?;
        let wanted = format!("#cloud-config\ninstance-id: {id}\nlocal-hostname: {VM}\n{mine}");
        same("meta-data", seen, wanted)
    })?;
    Ok(String::new())
}

fn cloud_init_keys(world: &World) -> Seen {
    let data = "#cloud-config\nruncmd: [touch /run/me]\n";
    for key in ["cloud-init.user-data", "cloud-init.vendor-data"] {
        world.with_key(key, data, None, || same(key, get(world, key)?, data.trim()))?;
    }
    Ok("user-data and vendor-data, as they are".into())
}

/// Characters that JSON, YAML, HTML and C escape, and one of four bytes.
const ESCAPES: &str = "#cloud-config\nwrite_files:\n- content: \"tab\\t \\\"quoted\\\" \\\\ \\u00e9 %s %41 \u{2028} .\"\n  \
    path: '/run/\u{1f600} \u{fc} <b>&amp;</b> $HOME `id`'\n#\ta tab, \u{1f469}\u{200d}\u{1f680} and an end\n";

fn user_data_escapes(world: &World) -> Seen {
    for key in ["cloud-init.user-data", "user.user-data"] {
        let seen = || world.exec(&["mote-agent", "get", key]).text();
        world.with_key(key, ESCAPES, None, || same(key, seen()?, ESCAPES))?;
    }
    Ok(String::new())
}

fn device_event(world: &World) -> Seen {
    listening(world)?;
    plug(world, "told", "/mnt/told", &[])?;
    let told = world.until("the event", 15, || Ok(events(world)?.contains("\"told\"")));
    let mounted = in_guest(world, "/mnt/told");
    unplug(world, "told")?;
    let (took, _) = (told?, mounted?);
    Ok(format!("after {took} s: {}", line_with(&events(world)?, "\"told\"")?))
}

fn ready(world: &World) -> Seen {
    for (word, status) in [("ready", "Ready"), ("started", "Running"), ("ready", "Ready")] {
        world.exec(&["mote-agent", word]).code(0)?;
        same("the status", world.status()?, status)?;
    }
    let listed = world.ok(&["list", VM, "-f", "csv", "-c", "s"])?;
    same("in the list", listed.trim(), "READY")?;
    Ok(String::new())
}

fn last_state_ready(world: &World) -> Seen {
    for (word, value) in [("ready", "true"), ("started", "false"), ("ready", "true")] {
        world.exec(&["mote-agent", word]).code(0)?;
        same(word, config(world, "volatile.last_state.ready")?, value)?;
    }
    Ok(String::new())
}

fn off_and_on(world: &World) -> Seen {
    let key = world.server.guest_api();
    world.ok(&["config", "set", VM, key, "false"])?;
    let socket = format!("ls {} 2>&1 || true", world.server.guest_socket());
    let off = world.until("no socket", 20, || Ok(world.sh(&socket)?.contains("No such file")));
    let refused = world.exec(&["mote-agent", "get", "user.greeting"]).run();
    world.ok(&["config", "set", VM, key, "true"])?;
    let works = || Ok(get(world, "user.greeting")? == "hello");
    let on = world.until("the guest API", 20, works);
    world.ok(&["config", "unset", VM, key])?;
    let (off, refused, on) = (off?, refused?, on?);
    same("it is refused while off", refused.code != 0, true)?;
    Ok(format!("off after {off} s ({}), on after {on} s", refused.said()))
}
