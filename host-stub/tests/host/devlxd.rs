//! The devlxd API as a guest sees it.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::mpsc::channel;

use serde_json::{Value, json};

use crate::peers::guest::Guest;
use crate::peers::host::{Host, SOON, wait};
use crate::peers::qmp::Qemu;

fn started(flavour: &str, config: &[&str]) -> (Host, Guest) {
    let mut host = Host::with_instance(flavour, config);
    host.start();
    let guest = Guest::of(&host);
    (host, guest)
}

#[test]
fn what_lxd_guests_read() {
    let config = ["user.foo=a \"b\"", "cloud-init.user-data=#x", "limits.cpu=1", "user.empty="];
    let (host, guest) = started("lxd", &config);
    assert_eq!(guest.get("/"), (200, json!(["/1.0"])));
    let (status, info) = guest.get("/1.0");
    assert_eq!(
        (status, &info["state"], &info["auth"]),
        (200, &json!("Started"), &json!("untrusted"))
    );
    let keys = ["cloud-init.user-data", "user.empty", "user.foo"];
    assert_eq!(guest.get("/1.0/config").1, json!(keys.map(|key| format!("/1.0/config/{key}"))));
    assert_eq!(guest.get("/1.0/config/user.foo"), (200, json!("a \"b\"")));
    assert_eq!(guest.get("/1.0/config/user%2Efoo"), (200, json!("a \"b\"")));
    assert_eq!(guest.get("/1.0/config/user.empty"), (404, json!("Not Found")));
    assert_eq!(guest.get("/1.0/config/limits.cpu"), (403, json!("Forbidden")));
    let meta = "instance-id: vm1-0001\nlocal-hostname: vm1\n";
    assert_eq!(guest.get("/1.0/meta-data"), (200, json!(meta)));
    assert_eq!(guest.ask("POST", "/1.0/config", "").0, 501);
    assert_eq!(guest.get("/1.0/nope").0, 404);
    host.run(&["device-add", "vm1", "eth0", "type=nic"]);
    host.run(&["set", "vm1", "volatile.eth0.hwaddr=00:16:3e:00:00:01"]);
    let nic = json!({"eth0": {"type": "nic", "hwaddr": "00:16:3e:00:00:01"}});
    assert_eq!(guest.get("/1.0/devices"), (200, nic));
    assert_eq!(guest.get("/1.0/ubuntu-pro"), (200, json!({"guest_attach": "off"})));
    let refused = "Failed getting an Ubuntu Pro guest token: Guest attachment not allowed";
    assert_eq!(guest.ask("POST", "/1.0/ubuntu-pro/token", ""), (403, json!(refused)));
    host.run(&["set", "vm1", "ubuntu_pro.guest_attach=available"]);
    assert!(guest.ask("POST", "/1.0/ubuntu-pro/token", "").1["guest_token"].is_string());
    assert_eq!(host.state()["last_request"], "POST /1.0/ubuntu-pro/token");
    assert!(host.log().contains("vm1: GET /1.0/config 200"));
}

#[test]
fn what_guests_of_other_servers_read() {
    for flavour in ["incus", "lxd-5.0"] {
        let (_host, guest) = started(flavour, &["user.foo=bar", "user.empty="]);
        let info = guest.get("/1.0").1;
        assert_eq!(info.get("auth"), None);
        assert_eq!(info["location"] == "none", flavour == "lxd-5.0");
        // The method does not matter to them.
        assert_eq!(guest.ask("POST", "/1.0/config/user.foo", ""), (200, json!("bar")));
        assert_eq!(guest.get("/1.0/config/user.empty"), (200, json!("")));
        assert_eq!(guest.get("/1.0/config/limits.cpu"), (403, json!("not authorized")));
        let meta = guest.get("/1.0/meta-data").1;
        assert!(meta.as_str().unwrap().starts_with("#cloud-config\ninstance-id: "), "{meta}");
        assert_eq!(guest.get("/1.0/ubuntu-pro").0, 404);
    }
    let (host, guest) = started("incus", &["security.guestapi=false"]);
    assert_eq!(guest.get("/1.0").0, 200, "not gated there");
    assert_eq!(guest.get("/1.0/config"), (403, json!("not authorized")));
    assert_eq!(guest.ask("PUT", "/1.0", ""), (403, json!("not authorized")));
    host.run(&["unset", "vm1", "security.guestapi"]);
    assert_eq!(guest.ask("PUT", "/1.0", ""), (400, json!("method \"PUT\" not allowed")));
}

#[test]
fn old_lxd_does_not_know_ready() {
    let (host, guest) = started("lxd-5.0", &[]);
    assert_eq!(guest.ask("PATCH", "/1.0", r#"{"state":"Ready"}"#).1["state"], "");
    assert_eq!(host.state()["ready"], false);
}

#[test]
fn ready_is_set_withdrawn_and_lost_with_the_vm_or_the_daemon() {
    let mut host = Host::with_instance("lxd", &[]);
    let qemu = Qemu::start(&host.path("vm1.qmp"));
    host.start();
    wait("the monitor", SOON, || (qemu.reads() > 0).then_some(()));
    let guest = Guest::of(&host);
    let ready = |guest: &Guest| guest.ask("PATCH", "/1.0", r#"{"state":"Ready"}"#);
    let status = |host: &Host| host.state()["status"].clone();
    assert_eq!(ready(&guest), (200, json!("")));
    assert_eq!(ready(&guest).0, 200);
    assert_eq!(host.log().matches("vm1: instance-ready").count(), 2, "each time");
    assert_eq!(
        (status(&host), guest.get("/1.0").1["state"].clone()),
        (json!("Ready"), json!("Ready"))
    );
    assert_eq!(guest.ask("PATCH", "/1.0", r#"{"state":"Started"}"#).0, 200);
    assert_eq!(host.run(&["get", "vm1", "volatile.last_state.ready"]), "false\n");
    assert_eq!(guest.ask("PATCH", "/1.0", r#"{"state":"x"}"#), (400, json!("Invalid state \"x\"")));
    ready(&guest);
    drop(qemu);
    wait("Stopped", SOON, || (status(&host) == "Stopped").then_some(()));
    let qemu = Qemu::start(&host.path("vm1.qmp"));
    wait("Running", SOON, || (status(&host) == "Running").then_some(()));
    ready(&guest);
    host.kill();
    host.start();
    assert_eq!(status(&host), "Running", "the VM did not mind");
    assert!(host.try_run(&["get", "vm1", "volatile.last_state.ready"]).is_err(), "deleted");
    assert_eq!(Guest::of(&host).get("/1.0").1["state"], "Started");
    drop(qemu);
}

#[test]
fn refuses_every_other_certificate() {
    let mut host = Host::with_instance("lxd", &[]);
    let other = host.init("other", "lxd", &[]);
    let old = host.init("old", "incus", &[]);
    host.start();
    let unauthorized = (401, json!("Unauthorized"));
    assert_eq!(Guest::with_share(&host, "vm1", None).get("/1.0"), unauthorized);
    // A neighbour's certificate is valid only on the neighbour's vsock.
    assert_eq!(Guest::with_share(&host, "vm1", Some(&other)).get("/1.0"), unauthorized);
    assert_eq!(Guest::with_share(&host, "other", Some(&other)).get("/1.0").0, 200);
    let text =
        Guest::with_share(&host, "old", Some(&other)).try_ask("GET", "/1.0", "", "").unwrap();
    assert_eq!(text.text(), "Unauthorized\n", "Incus says it in plain text");
    assert_eq!(Guest::with_share(&host, "old", Some(&old)).get("/1.0").0, 200);
}

#[test]
fn an_image_has_the_requested_size_and_constant_content() {
    let size = 1_234_567;
    let size_key = format!("mote.image.size={size}");
    let (host, guest) = started("lxd", &[&size_key]);
    let path = "/1.0/images/abc/export";
    assert_eq!(guest.get(path), (403, json!("Forbidden")));
    host.run(&["set", "vm1", "security.devlxd.images=true"]);
    let get = || guest.try_ask("GET", path, "", "").unwrap();
    let (one, two) = (get(), get());
    assert_eq!(one.header("Content-Length"), Some("1234567"));
    assert_eq!(one.header("X-Path"), Some(path));
    assert_eq!(one.body.len(), size);
    assert!(one.body == two.body);
    // Noise, not zeros: every byte value occurs.
    let mut seen = [false; 256];
    one.body.iter().for_each(|byte| seen[usize::from(*byte)] = true);
    assert!(seen.iter().all(|seen| *seen));
}

#[test]
fn events_are_of_one_instance_or_of_all() {
    let (host, guest) = started("lxd", &[]);
    host.init("other", "lxd", &[]);
    let follow = |args: &[&str]| {
        let mut child = mote_machine::bounded(host.command(args).stdout(Stdio::piped())).unwrap();
        let (sender, receiver) = channel();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _gone = sender.send(serde_json::from_str::<Value>(&line).unwrap());
            }
        });
        (child, receiver)
    };
    let (mut all, of_all) = follow(&["events"]);
    let (mut one, of_one) = follow(&["events", "vm1"]);
    // Until both listen.
    std::thread::sleep(std::time::Duration::from_millis(500));
    host.run(&["start", "other"]);
    guest.ask("PATCH", "/1.0", r#"{"state":"Ready"}"#);
    let first = of_all.recv_timeout(SOON).unwrap();
    assert_eq!(
        (&first["instance"], &first["metadata"]["action"]),
        (&json!("other"), &json!("instance-started"))
    );
    let heard = of_one.recv_timeout(SOON).unwrap();
    assert_eq!(heard["metadata"]["action"], "instance-ready");
    assert_eq!(heard, of_all.recv_timeout(SOON).unwrap());
    for child in [&mut all, &mut one] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
