//! Boots that never reach an agent: the first line names the cause.

use std::fs;
use std::process::Output;

use serde_json::json;

use super::World;
use crate::peers::qmp::Qemu;

const ALERT: &str = "ALERT!  /dev/vda1 does not exist.  Dropping to a shell!";

#[test]
fn reports_a_boot_that_stops_in_its_initramfs_immediately() {
    let script = format!(
        "printf 'Gave up.\\r\\n{ALERT}\\r\\n\\r\\n(initramfs) ' >\"$console\"; exec sleep 1000"
    );
    let world = World::new("initramfs", &script);
    let (code, said) = world.run(&["--accel", "tcg", "--boot-timeout", "9999"]);
    assert_eq!(code, Some(125), "{said}");
    let first = format!("mote-host: the guest's boot stopped at \"{ALERT}\": ");
    assert!(said.starts_with(&first), "{said}");
    assert!(said.ends_with(&format!("  Gave up.\n  {ALERT}\n  (initramfs) \n")), "{said}");
    // A guest that restarts by itself, and one whose time limit ends before that.
    let script = format!("printf '{ALERT}\\r\\n' >\"$console\"; exit 0");
    let (code, said) = World::new("reboots", &script).run(&["--accel", "tcg"]);
    assert!(code == Some(125) && said.starts_with(&first), "{said}");
    let script = "printf '\\033[0;1;31mYou are in emergency mode.\\033[0m After' >\"$console\"; exec sleep 1000";
    let world = World::new("emergency", script);
    let (_, said) = world.run(&["--accel", "tcg", "--boot-timeout", "0.5"]);
    let first = "mote-host: no agent after 0.5 s: the guest's boot stopped at \"You are in emergency mode. After\": ";
    assert!(said.starts_with(first), "{said}");
    // Quotes contain no colours.
    assert!(said.ends_with("\n  You are in emergency mode. After\n"), "{said}");
}

/// Runs a disk with a monitor that the test serves.
fn with_monitor(name: &str, script: &str, options: &[&str], act: impl FnOnce(&Qemu)) -> Output {
    let world = World::new(name, &format!("{script}exec sleep 1000"));
    let disk = world.path("disk");
    fs::write(&disk, "no boot loader").unwrap();
    let (program, time) = (world.path("qemu"), ["--accel", "tcg", "--qemu"]);
    let words = [&time[..], &[&program, "--disk", &disk], options, &["--", "true"]].concat();
    std::thread::scope(|threads| {
        let run = threads.spawn(|| world.bare(&words).output().unwrap());
        let qemu = Qemu::start(&world.instance().join("qmp"));
        qemu.share_read(0);
        qemu.is_read();
        act(&qemu);
        run.join().unwrap()
    })
}

#[test]
fn distinguishes_an_unbootable_disk_from_a_missing_driver() {
    let run = |name: &str, script: &str| {
        let output = with_monitor(name, script, &["--boot-timeout", "2"], |_| ());
        assert_eq!(output.status.code(), Some(125));
        String::from_utf8(output.stderr).unwrap()
    };
    let said = run("empty", "");
    let first = "mote-host: no agent after 2 s: nothing was booted: ";
    assert!(said.starts_with(first) && said.contains("console=ttyS0"), "{said}");
    let said = run("talks", "printf 'Linux\\r\\n' >\"$console\"; ");
    assert!(said.contains("(virtio_blk)") && !said.contains("nothing was booted"), "{said}");
}

#[test]
fn reports_a_full_disk_of_this_machine() {
    for (name, options) in [("full", &[][..]), ("fullwrite", &["--write"])] {
        let output = with_monitor(name, "", options, |qemu| {
            let data = json!({"operation": "write", "action": "stop", "nospace": true});
            qemu.event_with("BLOCK_IO_ERROR", &data);
            qemu.event("STOP");
        });
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{said}");
        let tmp = if name == "full" { "/tmp is full, " } else { " is full, " };
        assert!(said.starts_with("mote-host: /") && said.contains(tmp), "{said}");
        assert!(said.contains("the guest's writes to its disk are stored"), "{said}");
    }
}
