//! Mounts and NICs in the config share (P§1.8, P§1.9), and the mount tags of shares.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Result;
use data_encoding::BASE64URL_NOPAD;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::{Flavour, Instance, store};
use crate::common::whole_file::write_whole;

pub type Device = BTreeMap<String, String>;

pub fn write_devices(root: &Path, instance: &Instance) -> Result<()> {
    let share = store::share(root, &instance.name);
    let mounts = format!("{}\n", mounts(instance));
    write_whole(&share.join("agent-mounts.json"), mounts.as_bytes(), 0o400)?;
    let nics = share.join("nics");
    if nics.exists() {
        fs::remove_dir_all(&nics)?;
    }
    if !instance.is_true("agent.nic_config") {
        return Ok(());
    }
    fs::create_dir(&nics)?;
    for (name, device) in instance.shown_devices().iter().filter(|(_, device)| is(device, "nic")) {
        let text = |key: &str| device.get(key).map_or("", String::as_str);
        let mtu: u32 = text("mtu").parse().unwrap_or(0);
        let nic = json!({"device_name": name, "nic_name": text("name"),
            "mac_address": text("hwaddr").to_ascii_lowercase(), "mtu": mtu});
        let path = nics.join(format!("{}.json", encode(name)));
        write_whole(&path, nic.to_string().as_bytes(), 0o700)?;
    }
    Ok(())
}

fn mounts(instance: &Instance) -> Value {
    let disks = instance.devices.iter().filter(|(_, device)| is_share(device));
    disks.map(|(name, device)| mount(instance.flavour, name, device)).collect()
}

fn mount(flavour: Flavour, name: &str, device: &Device) -> Value {
    let bus = device.get("io.bus").map(String::as_str);
    let is_9p = match flavour {
        // LXD up to 5.19 names only 9p; its agents try virtiofs first.
        Flavour::LxdOld => true,
        Flavour::Lxd | Flavour::LxdMicro | Flavour::Incus => bus == Some("9p"),
    };
    let options = is_9p.then_some("trans=virtio,msize=33554432").into_iter();
    let options: Vec<_> = options.chain(is_readonly(device).then_some("ro")).collect();
    json!({
        "source": tag(flavour, name, device),
        "target": device.get("path"),
        "fstype": if is_9p { "9p" } else { "virtiofs" },
        "options": if options.is_empty() { Value::Null } else { json!(options) },
    })
}

/// Returns the `mount` of a device event. Only LXD has one, for added devices (P§4.3).
pub fn event_mount(flavour: Flavour, name: &str, device: &Device) -> Option<Value> {
    if !flavour.is_lxd() || !is_share(device) {
        return None;
    }
    let options: &[&str] = if is_readonly(device) { &["ro"] } else { &[] };
    Some(json!({"source": tag(flavour, name, device), "target": "", "fstype": "",
        "options": options}))
}

/// Returns the mount tag of a share, cut to the length that its bus permits.
pub fn tag(flavour: Flavour, name: &str, device: &Device) -> String {
    let is_9p = device.get("io.bus").is_some_and(|bus| bus == "9p");
    let (prefix, name, longest) = match (flavour, is_9p) {
        (Flavour::Lxd | Flavour::LxdMicro | Flavour::LxdOld, _) => ("lxd_", encode(name), 31),
        (Flavour::Incus, true) => ("incus_", name.to_owned(), 25),
        (Flavour::Incus, false) => ("incus_", name.to_owned(), 30),
    };
    let mut tag = format!("{prefix}{name}");
    if tag.len() > longest {
        let hash = BASE64URL_NOPAD.encode(digest(&SHA256, name.as_bytes()).as_ref());
        tag = format!("{prefix}{hash}");
        tag.truncate(longest);
    }
    tag
}

/// Encodes slashes in a name, as both servers do.
fn encode(name: &str) -> String {
    name.replace('-', "--").replace('/', "-")
}

fn is(device: &Device, kind: &str) -> bool {
    device.get("type").is_some_and(|found| found == kind)
}

fn is_share(device: &Device) -> bool {
    is(device, "disk") && device.get("path").is_some_and(|path| path != "/")
}

fn is_readonly(device: &Device) -> bool {
    device.get("readonly").is_some_and(|value| value == "true")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_disk(flavour: Flavour, name: &str, pairs: &[(&str, &str)]) -> Instance {
        let mut instance = Instance::sample(flavour, &[]);
        let all = [&[("type", "disk"), ("path", "/mnt/x")], pairs].concat();
        let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        instance.devices.insert(name.into(), all.iter().map(pair).collect());
        instance
    }

    #[test]
    fn each_server_describes_the_same_share_in_its_own_way() {
        let old = mounts(&with_disk(Flavour::LxdOld, "d", &[("readonly", "true")]));
        let options = json!(["trans=virtio,msize=33554432", "ro"]);
        assert_eq!((&old[0]["fstype"], &old[0]["options"]), (&json!("9p"), &options));
        let incus = mounts(&with_disk(Flavour::Incus, "d", &[("io.bus", "9p")]));
        assert_eq!(incus[0]["fstype"], "9p");
        let lxd = mounts(&with_disk(Flavour::Lxd, "d", &[]));
        assert_eq!((&lxd[0]["fstype"], &lxd[0]["options"]), (&json!("virtiofs"), &Value::Null));
    }

    #[test]
    fn hashes_long_names_to_the_limit() {
        let device = Device::new();
        let long = "a".repeat(40);
        for (flavour, length) in [(Flavour::Lxd, 31), (Flavour::Incus, 30)] {
            let tag = tag(flavour, &long, &device);
            assert_eq!(tag.len(), length);
            assert!(!tag.contains("aaaa"), "{tag}");
        }
    }
}
