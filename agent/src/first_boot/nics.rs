//! Sets the names and MTUs of NICs from the host's `nics/*.json` (P§1.9). The core's `nic` decides
//! the steps; each is one netlink request. For a hot-plugged NIC, reads the files again, or the
//! host's devices if it has written no file.

use std::path::Path;

use mote_core::first_boot::nic::{self, MAX_NICS, Nic, Search, Step, Wanted};
use mote_core::json::Value;
use mote_core::netlink::{Change, Reply, Table};
use rustix::io::Errno;
use rustix::stdio::stdin;

use crate::config::files;
use crate::options::Options;
use crate::runtime::{MAX_DOCUMENT, log, read_to_end};
use crate::system::modules;
use crate::system::netlink::Netlink;

type NamedFile = (String, Vec<u8>);

/// Names the NICs with this index or a higher one. LXD writes a file for each before it hot-plugs
/// the NIC. For Incus the agent has requested the devices and passes the answer on standard input.
pub(crate) fn plugged(options: &Options, first: u32) -> u8 {
    match files::find(options, &mut |_, _| Ok(())) {
        Ok(files) => {
            let mut wanted = wanted(&files.nics);
            // Without any file, `agent.nic_config` is off, so NICs keep their names.
            if !wanted.is_empty()
                && let Ok(answer) = read_to_end(stdin(), MAX_DOCUMENT)
                && let Ok(answer) = Value::parse(&answer)
            {
                wanted = Wanted::of_devices(answer).take(MAX_NICS).collect();
            }
            bring(&options.root, &wanted, first);
        }
        // The disk or share may no longer be attached.
        Err(why) => log::debug(format_args!("cannot rename NICs: {why}")),
    }
    0
}

pub(super) fn apply(root: &Path, files: &[NamedFile]) {
    bring(root, &wanted(files), 0);
}

fn bring(root: &Path, wanted: &[Wanted], first: u32) {
    if wanted.is_empty() {
        return;
    }
    // The Go agents missed NICs whose driver was not loaded yet (incus ea1436650a).
    modules::prepare(root, &["virtio_net"]);
    if let Err(error) = configure(wanted, first) {
        log::warn(format_args!("cannot list NICs: {error}"));
    }
}

/// Parses the files; logs and skips malformed ones.
fn wanted(files: &[NamedFile]) -> Vec<Wanted> {
    let mut wanted = Vec::new();
    for (name, bytes) in files.iter().take(MAX_NICS) {
        match Wanted::parse(bytes) {
            Ok(nic) => wanted.push(nic),
            Err(why) => log::warn(format_args!("nics/{name}: {why}")),
        }
    }
    wanted
}

/// Configures the links whose index is at least `first`, and others whose names they need.
fn configure(wanted: &[Wanted], first: u32) -> Result<(), Errno> {
    let mut netlink = Netlink::open()?;
    let mut search = Search::new(wanted);
    netlink.dump(Table::Links, |reply| {
        if let Reply::Link(link) = reply {
            search.see(link);
        }
    })?;
    // After a hot-plug, other NICs may be missing because they were unplugged.
    for Wanted { mac: [a, b, c, d, e, f], .. } in search.missing().filter(|_| first == 0) {
        log::warn(format_args!("no NIC has {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}"));
    }
    for group in search.groups() {
        if group.iter().all(|nic| nic.index < first) {
            continue;
        }
        if let Err((index, act, error)) = walk(&mut netlink, &nic::steps(&group)) {
            let name = group.iter().find(|nic| nic.index == index).map_or("?", |nic| &nic.name);
            log::warn(format_args!("NIC {name}: cannot {}: {error}; unchanged", Words(&act)));
        } else {
            group.iter().for_each(log_change);
        }
    }
    Ok(())
}

fn log_change(nic: &Nic) {
    let name = nic.new_name.as_deref().unwrap_or(&nic.name);
    let mtu = nic.new_mtu.unwrap_or(nic.mtu);
    log::info(format_args!("NIC {} is now {name}, MTU {mtu}", nic.name));
}

/// Performs all steps or none: after an error, reverts the completed steps in reverse order.
/// Errors: interface index and action of the step that failed, and the kernel's reason.
fn walk(netlink: &mut Netlink, steps: &[Step]) -> Result<(), (u32, Change, Errno)> {
    for (at, step) in steps.iter().enumerate() {
        let Err(error) = netlink.change(step.index, &step.act) else { continue };
        for done in steps.iter().take(at).rev() {
            let Some(undo) = &done.undo else { continue };
            if let Err(error) = netlink.change(done.index, undo) {
                log::warn(format_args!(
                    "NIC number {}: cannot {}: {error}",
                    done.index,
                    Words(undo)
                ));
            }
        }
        return Err((step.index, step.act.clone(), error));
    }
    Ok(())
}

struct Words<'a>(&'a Change);

impl std::fmt::Display for Words<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Change::Up => out.write_str("bring it up"),
            Change::Down => out.write_str("take it down"),
            Change::Name(name) => write!(out, "name it {name}"),
            Change::Mtu(mtu) => write!(out, "set MTU {mtu}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use mote_machine::{Private, in_private};

    use super::*;

    /// Runs the test with this name again in its own network namespace; true inside.
    #[track_caller]
    fn in_private_network(test: &str) -> bool {
        in_private(Private::Network, &format!("first_boot::nics::tests::{test}"))
    }

    fn ip(args: &str) -> String {
        let out = Command::new("ip").args(args.split_whitespace()).output().unwrap();
        assert!(out.status.success(), "ip {args}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    fn link(mac: &str) -> (String, u32, bool) {
        let links = ip("-o link");
        let line = links.lines().find(|line| line.contains(mac)).unwrap();
        let mut words = line.split_whitespace();
        let name = words.nth(1).unwrap().split(['@', ':']).next().unwrap().to_owned();
        let up = words.next().unwrap().contains("UP");
        let mtu = words.nth(1).unwrap().parse().unwrap();
        (name, mtu, up)
    }

    fn file(mac: &str, name: &str, mtu: u32) -> Vec<u8> {
        format!(r#"{{"device_name":"x","nic_name":"{name}","mac_address":"{mac}","mtu":{mtu}}}"#)
            .into_bytes()
    }

    fn named_files(files: &[Vec<u8>]) -> Vec<NamedFile> {
        files.iter().map(|file| ("x.json".to_owned(), file.clone())).collect()
    }

    fn apply_all(files: &[Vec<u8>]) {
        apply(Path::new("/nowhere"), &named_files(files));
    }

    const A: &str = "00:16:3e:00:00:0a";
    const B: &str = "00:16:3e:00:00:0b";
    const C: &str = "00:16:3e:00:00:0c";

    #[test]
    fn the_kernel_renames_swaps_and_reverts() {
        let true = in_private_network("the_kernel_renames_swaps_and_reverts") else { return };
        ip(&format!("link add enp5s0 address {A} type veth peer name enp6s0 address {B}"));
        ip(&format!("link add enp7s0 address {C} type ifb"));
        ip("link set enp5s0 up");
        ip("addr add 192.0.2.1/24 dev enp5s0");
        // A malformed file does not stop the others, as it would in the Go agents.
        apply_all(&[b"{".to_vec(), file(A, "eth0", 1400), file(B, "", 1300), file(C, "eth2", 0)]);
        assert_eq!(link(A), ("eth0".into(), 1400, true));
        assert_eq!(link(B), ("enp6s0".into(), 1300, true));
        assert_eq!(link(C), ("eth2".into(), 1500, true));
        assert!(ip("addr show eth0").contains("192.0.2.1/24"));

        // Three NICs rotate their names.
        apply_all(&[file(A, "enp6s0", 0), file(B, "eth2", 0), file(C, "eth0", 1280)]);
        assert_eq!(link(A), ("enp6s0".into(), 1400, true));
        assert_eq!(link(B), ("eth2".into(), 1300, true));
        assert_eq!(link(C), ("eth0".into(), 1280, true));

        // A swap in which the last step fails: no veth has an MTU of 70,000.
        ip("link set eth2 down");
        apply_all(&[file(A, "eth2", 1500), file(B, "enp6s0", 70_000), file(C, "lan", 0)]);
        assert_eq!(link(A), ("enp6s0".into(), 1400, true));
        assert_eq!(link(B), ("eth2".into(), 1300, false));
        assert_eq!(link(C), ("lan".into(), 1280, true));

        // The name belongs to another link.
        apply_all(&[file(C, "lo", 1500)]);
        assert_eq!(link(C), ("lan".into(), 1280, true));
    }

    #[test]
    fn renames_only_the_hot_plugged_nics() {
        let true = in_private_network("renames_only_the_hot_plugged_nics") else { return };
        ip(&format!("link add enp5s0 address {A} type ifb"));
        ip(&format!("link add enp6s0 address {B} type ifb"));
        let index = ip("-o link show enp6s0").split(':').next().unwrap().parse().unwrap();
        // An administrator has renamed the first NIC.
        ip("link set enp5s0 name wan");
        let files = named_files(&[file(A, "eth0", 1400), file(B, "lan", 1300), file(C, "none", 0)]);
        bring(Path::new("/nowhere"), &wanted(&files), index);
        assert_eq!(link(A), ("wan".into(), 1500, false));
        assert_eq!(link(B), ("lan".into(), 1300, true));
    }

    #[test]
    fn ignores_a_bridge_with_the_same_address() {
        let true = in_private_network("ignores_a_bridge_with_the_same_address") else { return };
        ip(&format!("link add enp5s0 address {A} type ifb"));
        ip(&format!("link add br0 address {A} type bridge"));
        apply_all(&[file(A, "eth0", 1400)]);
        let links = ip("-o link");
        assert!(links.contains("eth0"), "{links}");
        assert!(links.contains("br0: <BROADCAST,MULTICAST> mtu 1500"), "{links}");
    }
}
