//! State that an agent remembers for a start without the host's files.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use mote_tests::by_root;

use crate::world::{Boot, connected, terminate};

#[test]
fn starts_with_the_stored_host_if_the_share_is_missing() {
    let true = by_root() else { return };
    let mut boot = Boot::new("lxd");
    let kept = boot.scratch.0.join("kept");
    let arguments = ["--remember", kept.to_str().unwrap()];
    let mut agent = boot.start(&arguments);
    connected(&boot, 1);
    let names = ["agent.crt", "agent.key", "server.crt", "agent.conf"];
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&kept), 0o700);
    for name in names {
        assert_eq!(mode(&kept.join(name)), 0o600, "{name}");
        assert!(
            fs::read(kept.join(name)).unwrap() == fs::read(boot.host.share.join(name)).unwrap()
        );
    }
    // The host returns with another address, and calls.
    boot.host.kill();
    boot.host.start();
    let client = boot.client();
    let told = client.host_info().unwrap().to_string();
    client.announce();
    assert_eq!(fs::read_to_string(kept.join("agent.conf")).unwrap(), told);
    assert_eq!(terminate(&mut agent), Some(0));

    // No share, and an empty /run: another boot.
    fs::rename(&boot.host.share, boot.scratch.0.join("gone")).unwrap();
    fs::remove_dir_all(boot.root("run/mote")).unwrap();
    let (_, said) = boot.says(&[&arguments[..], &["--check"]].concat());
    let _agent = boot.start(&arguments);
    boot.logged(&format!("files from {}", kept.display()));
    boot.logged(": CONNECTED ");
    assert!(said.contains("kept"), "{said}");
}

#[test]
fn ignores_files_that_others_can_change() {
    let true = by_root() else { return };
    let boot = Boot::new("lxd");
    let kept = boot.scratch.0.join("kept");
    fs::create_dir(&kept).unwrap();
    fs::set_permissions(&kept, PermissionsExt::from_mode(0o777)).unwrap();
    let arguments = ["--remember", kept.to_str().unwrap()];
    let mut agent = boot.start(&arguments);
    connected(&boot, 1);
    assert_eq!(terminate(&mut agent), Some(0));
    assert_eq!(fs::read_dir(&kept).unwrap().count(), 0);
    for name in ["agent.crt", "agent.key", "server.crt"] {
        fs::copy(boot.host.share.join(name), kept.join(name)).unwrap();
    }
    fs::rename(&boot.host.share, boot.scratch.0.join("gone")).unwrap();
    let mut command = boot.command(&arguments);
    let status = command.arg("--no-wait").status().unwrap();
    assert_eq!(status.code(), Some(1), "{}", boot.log());
}
