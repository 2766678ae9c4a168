//! Gives a packaged server a pool and a bridge.

use crate::prelude::*;

const UPLINK: &str = "uplink0";
/// A directory that takes LXD's first boot index.
const FIRST: &str = "/srv/first-of-all";
pub const FIRST_IN_GUEST: &str = "/mnt/first-of-all";

/// Restarts of a server that did not detect QEMU.
const AGAIN: u32 = 4;

/// Returns whether the server runs already, in a kept outer VM.
pub fn is_up(world: &World) -> Try<bool> {
    let active = world.run(&["systemctl", "is-active", "--quiet", world.server.service()]).run()?;
    Ok(active.code == 0)
}

/// Waits for the server, and restarts it if it rejected QEMU: it allows QEMU a few seconds to
/// answer, once at its start, which is too short on a busy machine.
pub fn knows_vms(world: &World) -> Try {
    for turn in 0..=AGAIN {
        let mut drivers = String::new();
        world.until("the server", 120, || {
            let about = world.query("/1.0")?;
            about["environment"]["driver"].as_str().unwrap_or_default().clone_into(&mut drivers);
            Ok(true)
        })?;
        if drivers.contains("qemu") {
            return Ok(());
        }
        if turn < AGAIN {
            let restart = ["systemctl", "restart", world.server.service()];
            world.run(&restart).within(world.limit(180)).code(0)?;
        }
    }
    Err("the server says that it cannot run VMs".into())
}

pub fn server(world: &World) -> Try {
    let name = world.server.service();
    // One of the last two does not match this processor. Instances contain no VMs.
    for module in ["vhost_vsock", "vhost_net", "tun", "kvm_amd nested=0", "kvm_intel"] {
        let words: Vec<_> = ["modprobe"].into_iter().chain(module.split(' ')).collect();
        let _other = world.run(&words).run()?;
    }
    world.run(&["systemctl", "start", &format!("{name}.socket")]).code(0)?;
    world.run(&["systemctl", "start", name]).within(world.limit(180)).code(0)?;
    knows_vms(world)?;
    let bridge = ["ipv4.address=10.77.0.1/24", "ipv4.nat=false", "ipv6.address=none"];
    world.ok(&["storage", "create", "default", "dir"])?;
    world.ok(&[&["network", "create", BRIDGE], &bridge[..]].concat())?;
    let add = ["profile", "device", "add", "default"];
    world.ok(&[&add, &["root", "disk", "path=/", "pool=default", "size=128MiB"][..]].concat())?;
    world.ok(&[&add[..], &["eth0", "nic", "name=eth0"], nic(world.server)].concat())?;
    if world.server == Server::Lxd { lxd_only(world) } else { Ok(()) }
}

/// Returns a NIC on the bridge. LXD 5.0.2 has QEMU open a tap device as `nobody`, which Debian 13's
/// kernel refuses. It opens a macvlan device itself. A NIC directly on the bridge could not reach
/// the bridge's own address.
pub fn nic(server: Server) -> &'static [&'static str] {
    match server {
        Server::Incus | Server::Incus60 => &["network=br-checks"],
        Server::Lxd => &["nictype=macvlan", "parent=uplink0"],
    }
}

fn lxd_only(world: &World) -> Try {
    let other = "uplink1";
    let commands: &[&[&str]] = &[
        &["ip", "link", "add", UPLINK, "type", "veth", "peer", "name", other],
        &["ip", "link", "set", other, "master", BRIDGE],
        &["ip", "link", "set", other, "up"],
        &["ip", "link", "set", UPLINK, "up"],
        &["mkdir", "-p", FIRST],
    ];
    for words in commands {
        world.run(words).code(0)?;
    }
    // A kernel that QEMU loads takes boot index 0, which LXD gives to the first disk or NIC. A
    // directory does not use it.
    let source = format!("source={FIRST}");
    let path = format!("path={FIRST_IN_GUEST}");
    let disk = [&source, &path, "boot.priority=100"];
    let add = ["profile", "device", "add", "default", "first-of-all", "disk"];
    world.ok(&[&add, &disk[..]].concat()).map(drop)
}
