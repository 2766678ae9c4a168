//! The config share: templates, NICs and mounts as a guest finds them.

use serde_json::{Value, json};

use crate::peers::host::{Host, text};

fn json_of(host: &Host, name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(host.share("vm1").join(name)).unwrap()).unwrap()
}

#[test]
fn templates_and_nics_are_written_at_init() {
    let host = Host::new();
    let file = host.path("content");
    std::fs::write(&file, "rendered\n").unwrap();
    let template = format!("/etc/a b={},create_only,mode=600", text(&file));
    let args = ["--flavour", "incus", "--vsock-cid", "7", "--qmp", "/nowhere"];
    let more = ["--template", &template, "--nic", "lan/0=AA:BB:cc:00:00:01,mtu=1400"];
    host.run(&[&["init", "vm1"], &args[..], &more[..]].concat());
    let files = host.share("vm1").join("files");
    assert_eq!(std::fs::read_to_string(files.join("0.tpl.out")).unwrap(), "rendered\n");
    let metadata = std::fs::read_to_string(files.join("metadata.yaml")).unwrap();
    for line in [
        "templates:",
        "  \"/etc/a b\":",
        "    template: 0.tpl",
        "    create_only: true",
        "    mode: \"600\"",
    ] {
        assert!(metadata.lines().any(|found| found == line), "{line} in {metadata}");
    }
    let nic = json!({"device_name": "lan/0", "nic_name": "lan/0",
        "mac_address": "aa:bb:cc:00:00:01", "mtu": 1400});
    assert_eq!(json_of(&host, "nics/lan-0.json"), nic);
    assert_eq!(json_of(&host, "agent-mounts.json"), json!([]));
}

#[test]
fn updates_mounts_of_running_lxd_and_stopped_incus_vms() {
    for (flavour, source, live) in [("lxd", "lxd_my--disk", 1), ("incus", "incus_my-disk", 0)] {
        let mut host = Host::with_instance(flavour, &[]);
        host.start();
        host.run(&["start", "vm1"]);
        let add = ["device-add", "vm1", "my-disk", "type=disk", "path=/mnt", "readonly=true"];
        host.run(&add);
        let mounts = || json_of(&host, "agent-mounts.json");
        assert_eq!(mounts().as_array().unwrap().len(), live, "{flavour}");
        host.run(&["stop", "vm1"]);
        host.run(&["start", "vm1"]);
        let mount = json!([{"source": source, "target": "/mnt", "fstype": "virtiofs",
            "options": ["ro"]}]);
        assert_eq!(mounts(), mount);
        host.run(&["stop", "vm1"]);
        host.run(&["device-remove", "vm1", "my-disk"]);
        assert_eq!(mounts(), json!([]));
    }
}
