//! cloud-init in the guest with its LXD data source, which identifies LXD by the SMBIOS board name.

use mote_tests::{NAME, wait};

use crate::systems::seconds;
use crate::world::{BOOT, Plan, World, measured};

const ADDRESS: &str = "52:54:00:12:34:56";
/// Disables modules whose programs the image lacks.
const USER: &str = "#cloud-config\nlocale: false\nresize_rootfs: false\nssh_genkeytypes: []\nruncmd: [echo user-data >/srv/user-data]\n";
const VENDOR: &str =
    "#cloud-config\nwrite_files: [{path: /srv/vendor-data, content: vendor-data}]\n";
const NETWORK: &str = "version: 2\nethernets:\n  nic0:\n    match: {macaddress: \"52:54:00:12:34:56\"}\n    set-name: \
                       lan0\n    addresses: [192.0.2.7/24]\n";

fn all_arrives(release: &str) {
    let documents = [
        format!("cloud-init.user-data={USER}"),
        format!("cloud-init.vendor-data={VENDOR}"),
        format!("cloud-init.network-config={NETWORK}"),
    ];
    let config: Vec<_> = documents.iter().flat_map(|pair| ["--config", pair]).collect();
    let qemu = ["-smbios", "type=2,product=LXD"];
    let plan = Plan { host: &config, qemu: &qemu, nic: Some(ADDRESS), ..Plan::default() };
    let mut world = World::boot("cloud-init", release, &plan);
    let times = world.connected();
    let done = || world.host.sh("cat /run/cloud-init/result.json 2>/dev/null").ok();
    let (result, _) =
        wait("cloud-init", BOOT, || done().filter(|text| text.contains("datasource")));
    let version = world.sh("cloud-init --version 2>&1");
    println!("{}: {result}", version.trim());
    let log = || world.sh("cat /var/log/cloud-init.log | grep -v DEBUG");
    assert!(
        result.contains("DataSourceLXD") && result.contains("\"errors\": []"),
        "{result}{}",
        log()
    );
    for (path, text) in [("/srv/user-data", "user-data\n"), ("/srv/vendor-data", "vendor-data")] {
        assert_eq!(world.host.sh(&format!("cat {path}")).as_deref(), Ok(text), "{}", log());
    }
    assert_eq!(world.sh("hostname; cat /etc/hostname"), format!("{NAME}\n{NAME}\n"));
    let network = world.sh("ip -o addr show dev lan0");
    assert!(network.contains("inet 192.0.2.7/24"), "{network}");
    assert_eq!(world.sh("systemctl --failed --no-legend --plain"), "");
    measured(
        &format!("cloud-init of {release}, power-on to CONNECTED"),
        &format!("{}, {}", version.trim().trim_start_matches("/usr/bin/"), seconds(times.power_on)),
    );
    world.last_words("poweroff");
    world.stopped();
}

#[test]
fn debian_12() {
    all_arrives("bookworm");
}

#[test]
fn debian_13() {
    all_arrives("trixie");
}
