//! Directories and volumes that are plugged in while the instance runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::group;
use crate::world::{Seen, VM, World, put, read, same};

group! {
    "devices":
    directory [is_incus], directory_read_only [is_incus], directory_long_name [is_incus],
    two_directories [is_incus], block_volume
}

/// Plugs in a directory with a file in it.
pub(super) fn plug(world: &World, name: &str, path: &str, more: &[&str]) -> Result<(), String> {
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

pub(super) fn unplug(world: &World, name: &str) -> Result<(), String> {
    world.ok(&["config", "device", "remove", VM, name]).map(drop)
}

/// Waits until the guest reads the host's file at `path`. Returns the seconds, and the line of its
/// mounts.
pub(super) fn in_guest(world: &World, path: &str) -> Result<(f64, String), String> {
    let script = format!("cat {path}/from-host 2>/dev/null || true");
    let took =
        world.until("the directory in the guest", 40, || Ok(world.sh(&script)? == "host\n"))?;
    Ok((took, world.sh(&format!("grep ' {path} ' /proc/mounts"))?.trim().to_owned()))
}

fn out_of_guest(world: &World, path: &str) -> Result<f64, String> {
    let script = format!("grep -c ' {path} ' /proc/mounts || true");
    world.until("unmounted", 30, || Ok(world.sh(&script)?.trim() == "0"))
}

/// Plugs in, calls `look`, and unplugs in any case.
fn with_plugged(
    world: &World,
    name: &str,
    path: &str,
    more: &[&str],
    look: impl FnOnce() -> Seen,
) -> Seen {
    plug(world, name, path, more)?;
    let seen = in_guest(world, path).and_then(|(took, line)| Ok((took, line, look()?)));
    unplug(world, name)?;
    let (took, line, seen) = seen?;
    let gone = out_of_guest(world, path)?;
    Ok(format!("{line}; there after {took} s, gone after {gone} s {seen}"))
}

fn directory(world: &World) -> Seen {
    with_plugged(world, "share1", "/mnt/share1", &[], || {
        world.sh("echo guest >/mnt/share1/from-guest")?;
        same("written in the guest", read("/srv/share/from-guest")?, b"guest\n".to_vec())?;
        Ok(String::new())
    })
}

fn directory_read_only(world: &World) -> Seen {
    with_plugged(world, "share2", "/mnt/share2", &["readonly=true"], || {
        let script = "echo x >/mnt/share2/w 2>/dev/null && echo written || echo refused";
        same("writing", world.sh(script)?.trim(), "refused")?;
        Ok(String::new())
    })
}

/// 9p tags have at most 31 bytes: the agent and the server must shorten names the same way.
fn directory_long_name(world: &World) -> Seen {
    with_plugged(world, "a-share-with-a-longer-name", "/mnt/long", &[], || Ok(String::new()))
}

fn two_directories(world: &World) -> Seen {
    plug(world, "first", "/mnt/first", &[])?;
    let both = with_plugged(world, "second", "/mnt/second", &[], || {
        in_guest(world, "/mnt/first")?;
        Ok(String::new())
    });
    // One is unplugged, the other stays.
    let first = both.and_then(|_| in_guest(world, "/mnt/first"));
    unplug(world, "first")?;
    first?;
    out_of_guest(world, "/mnt/first")?;
    Ok(String::new())
}

fn block_volume(world: &World) -> Seen {
    let volume = format!("volume-{VM}");
    world.ok(&["storage", "volume", "create", "default", &volume, "--type=block", "size=32MiB"])?;
    let source = format!("source={volume}");
    let disks = || world.sh("ls /sys/block");
    let before = disks()?;
    let plugged = world
        .ok(&["config", "device", "add", VM, "volume", "disk", "pool=default", &source])
        .and_then(|_| world.until("another disk", 30, || Ok(disks()? != before)));
    let removed = plugged.and_then(|came| {
        unplug(world, "volume")?;
        Ok((came, world.until("no other disk", 30, || Ok(disks()? == before))?))
    });
    world.ok(&["storage", "volume", "delete", "default", &volume])?;
    let (came, went) = removed?;
    Ok(format!("there after {came} s, gone after {went} s"))
}
