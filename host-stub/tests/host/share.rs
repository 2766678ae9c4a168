//! The config share: templates, NICs and mounts as a guest finds them.

use serde_json::{Value, json};

use crate::peers::host::Host;

fn json_of(host: &Host, name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(host.share("vm1").join(name)).unwrap()).unwrap()
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
