//! Directories and volumes that are plugged in while the instance runs.

use crate::prelude::*;

group! {
    "devices":
    directory [is_incus], directory_read_only [is_incus], directory_long_name [is_incus],
    two_directories [is_incus];
    "guestapi":
    config_and_event, many_events, metadata, user_data_escapes,
    device_event [is_incus], ready [is_incus], off_and_on
}

pub(super) fn plug(world: &World, name: &str, path: &str, more: &[&str]) -> Try {
    let source = "/srv/share";
    let make = || -> std::io::Result<()> {
        fs::create_dir_all(source)?;
        fs::set_permissions(source, fs::Permissions::from_mode(0o777))
    };
    make().map_err(|error| error.to_string())?;
    put("/srv/share/from-host", b"host\n")?;
    let (source, path) = (format!("source={source}"), format!("path={path}"));
    let words = ["config", "device", "add", VM, name, "disk", &source, &path];
    world.ok(&[&words, more].concat()).map(drop)
}

pub(super) fn unplug(world: &World, name: &str) -> Try {
    world.ok(&["config", "device", "remove", VM, name]).map(drop)
}

/// Waits until the guest can read the host's file below `path`. Returns the seconds that took, and
/// the guest's line for the mount.
pub(super) fn in_guest(world: &World, path: &str) -> Try<(f64, String)> {
    let script = format!("cat {path}/from-host 2>/dev/null || true");
    let took =
        world.until("the directory in the guest", 40, || Ok(world.sh(&script)? == "host\n"))?;
    Ok((took, world.sh(&format!("grep ' {path} ' /proc/mounts"))?.trim().to_owned()))
}

fn out_of_guest(world: &World, path: &str) -> Try<f64> {
    let script = format!("grep -c ' {path} ' /proc/mounts || true");
    world.until("unmounted", 30, || Ok(world.sh(&script)?.trim() == "0"))
}

/// Plugs a directory in, calls `look`, and always unplugs the directory.
fn with_plugged(
    world: &World,
    name: &str,
    path: &str,
    more: &[&str],
    look: impl FnOnce() -> Try,
) -> Seen {
    plug(world, name, path, more)?;
    let seen = in_guest(world, path).and_then(|seen| look().map(|()| seen));
    unplug(world, name)?;
    let (took, line) = seen?;
    let gone = out_of_guest(world, path)?;
    Ok(format!("{line}; there after {took} s, gone after {gone} s"))
}

fn directory(world: &World) -> Seen {
    with_plugged(world, "share1", "/mnt/share1", &[], || {
        world.sh("echo guest >/mnt/share1/from-guest")?;
        same("written in the guest", read("/srv/share/from-guest")?, b"guest\n".to_vec())
    })
}

fn directory_read_only(world: &World) -> Seen {
    with_plugged(world, "share2", "/mnt/share2", &["readonly=true"], || {
        let script = "echo x >/mnt/share2/w 2>/dev/null && echo written || echo refused";
        same("writing", world.sh(script)?.trim(), "refused")
    })
}

/// 9p tags are at most 31 bytes long: the agent and the server must shorten names the same way.
fn directory_long_name(world: &World) -> Seen {
    with_plugged(world, "a-share-with-a-longer-name", "/mnt/long", &[], || Ok(()))
}

fn two_directories(world: &World) -> Seen {
    plug(world, "first", "/mnt/first", &[])?;
    // One directory is unplugged; the other one stays.
    let look = || in_guest(world, "/mnt/first").map(drop);
    let both = with_plugged(world, "second", "/mnt/second", &[], look);
    let first = both.and_then(|_| in_guest(world, "/mnt/first"));
    unplug(world, "first")?;
    first?;
    out_of_guest(world, "/mnt/first")?;
    Ok(String::new())
}

fn get(world: &World, key: &str) -> Try<String> {
    Ok(world.exec(&["mote-agent", "get", key]).text()?.trim().to_owned())
}

fn events(world: &World) -> Try<String> {
    world.sh("cat /run/events.log || true")
}

/// Waits for the guest's listener after a restart of the agent: events are not kept for it.
fn listening(world: &World) -> Try {
    let mut turn = 0;
    world.until("a listener in the guest", 20, || {
        turn += 1;
        let (key, value) = ("user.listening", format!("{turn}"));
        world.ok(&["config", "set", VM, key, &value])?;
        thread::sleep(world.limit(1));
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
    let all = || -> Try<bool> {
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

fn config(world: &World, key: &str) -> Try<String> {
    let instance = world.query(&format!("/1.0/instances/{VM}"))?;
    Ok(instance["config"][key].as_str().unwrap_or_default().to_owned())
}

/// Compares it byte by byte, because cloud-init reads it as YAML.
fn metadata(world: &World) -> Seen {
    has(&world.exec(&["mote-agent", "config"]).text()?, "user.greeting")?;
    has(&world.exec(&["mote-agent", "devices"]).text()?, "\"root\"")?;
    let mine = "mine: \"a: b\"\nlist: [1, 2]\n";
    world.with_key("user.meta-data", mine, None, || {
        let seen = world.exec(&["mote-agent", "metadata"]).text()?;
        let id = config(world, "volatile.cloud-init.instance-id")?;
        let wanted = format!("#cloud-config\ninstance-id: {id}\nlocal-hostname: {VM}\n{mine}");
        same("meta-data", seen, wanted)
    })?;
    Ok(String::new())
}

/// Characters that JSON, YAML, HTML and C escape, and one of four bytes.
const ESCAPES: &str = "#cloud-config\nwrite_files:\n- content: \"tab\\t \\\"quoted\\\" \\\\ \\u00e9 %s %41 \u{2028} .\"\n  \
    path: '/run/\u{1f600} \u{fc} <b>&amp;</b> $HOME `id`'\n#\ta tab, \u{1f469}\u{200d}\u{1f680} and an end\n";

fn user_data_escapes(world: &World) -> Seen {
    for key in ["cloud-init.user-data", "cloud-init.vendor-data", "user.user-data"] {
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
    let ready = ("ready", "Ready", "true");
    for (word, status, kept) in [ready, ("started", "Running", "false"), ready] {
        world.exec(&["mote-agent", word]).code(0)?;
        same("the status", world.status()?, status)?;
        same(word, config(world, "volatile.last_state.ready")?, kept)?;
    }
    let listed = world.ok(&["list", VM, "-f", "csv", "-c", "s"])?;
    same("in the list", listed.trim(), "READY")?;
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
