//! Images with something missing or broken: each reports it on its console and provides what still
//! works. `early` covers late drivers and a second mote agent, `distros` a Go agent.

use mote_tests::{Guest, MOTE_BOOT, NAME, Spec, World, wait};

const START: &str = "start-stop-daemon -S -b -x /run/agent.start";

fn without_agent(words: &str) -> (World, Guest) {
    let words = format!("mote.agent=later {words}");
    let mut world = World::of("lxd", &Spec { words, ..Spec::default() }, &[]);
    let guest = world.vm.guest();
    (world, guest)
}

fn said(world: &World, line: &str) {
    let look = || world.vm.console().contains(line).then_some(());
    wait(&format!("{line:?} on the console"), MOTE_BOOT, look);
}

/// Checks that the host reports why the config share was not read.
fn unread(world: &World, told: &str) {
    let is_told = || {
        let why = &world.host.state()["why"];
        let says_so = why["text"].as_str().is_some_and(|text| text.contains(told));
        (why["cause"] == "share-unread" && says_so).then_some(())
    };
    wait("why nothing is heard", MOTE_BOOT, is_told);
}

/// Removes a driver's file, as in a kernel without it; `None` if the kernel contains the driver.
fn without(guest: &mut Guest, module: &str) -> Option<()> {
    guest.ok(&format!("rm -f $(find /lib/modules -name '{module}.ko*')"));
    (guest.sh(&format!("test -e /sys/module/{module}/initstate")).0 != 0
        && guest.sh(&format!("grep -q {module} /lib/modules/*/modules.builtin")).0 != 0)
        .then_some(())
}

#[test]
fn serves_devlxd_without_the_ports_driver() {
    let (world, mut guest) = without_agent("mote.modules=no");
    unread(&world, "not even a byte of the disk");
    let Some(()) = without(&mut guest, "virtio_console") else {
        return world.power_off_unseen(&mut guest);
    };
    guest.ok(START);
    said(
        &world,
        "waiting for the status port: a virtio-serial device has no driver (virtio_console)",
    );
    // The host has not called; its address was in the config share.
    assert_eq!(guest.ok("mote-agent get user.foo"), "bar\n");
    assert_eq!(world.host.state()["started"], false);
    let (code, text) = guest.sh("mote-agent --check");
    assert!(
        code == 1 && text.contains("missing  port: a virtio-serial device has no driver"),
        "{text}"
    );
    world.power_off_unseen(&mut guest);
}

#[test]
fn the_host_sees_an_agent_without_vsocks_driver() {
    let (world, mut guest) = without_agent("");
    if without(&mut guest, "vmw_vsock_virtio_transport").is_some() {
        guest.ok(START);
        said(&world, "warn: a vsock device has no driver (vmw_vsock_virtio_transport)");
        said(&world, "warn: cannot reach host 2:");
        // The host sees the agent but cannot call it.
        wait("STARTED", MOTE_BOOT, || (world.host.state()["started"] == true).then_some(()));
        let why = "the host cannot call this agent";
        let (code, text) = guest.sh("mote-agent status");
        assert!(code == 4 && text.contains(why), "{text}");
        let (code, text) = guest.sh("mote-agent --check");
        assert!(
            code == 1 && text.starts_with("missing  agent: a vsock device has no driver"),
            "{text}"
        );
        assert!(text.contains(why), "{text}");
    }
    world.power_off_unseen(&mut guest);
}

#[test]
fn works_on_a_read_only_root() {
    let (world, mut guest) = without_agent("");
    unread(&world, "nothing has mounted it");
    guest.ok("mount -o remount,ro /");
    assert_ne!(guest.sh("touch /file").0, 0, "it can be written");
    guest.ok(START);
    let _took = world.host.connected(MOTE_BOOT);
    assert_eq!(world.host.exec(&["echo", "served"]).as_deref(), Ok("served\n"));
    assert_eq!(guest.ok("mote-agent get user.foo"), "bar\n");
    let file = world.scratch.0.join("file");
    std::fs::write(&file, "text").unwrap();
    let push = |to: &str| {
        world.host.try_run(&["file", "push", file.to_str().unwrap(), &format!("{NAME}{to}")])
    };
    assert_eq!(push("/run/file").map(|_| ()), Ok(()));
    let why = push("/file").unwrap_err();
    assert!(why.contains("Read-only file system"), "{why}");
    world.power_off(&mut guest);
}

#[test]
fn waits_for_a_missing_dev_and_reports_it() {
    let (world, mut guest) = without_agent("");
    // The shell itself needs /dev/null.
    let log = guest.ok(
        "umount -l /dev/pts; umount -l /dev; mote-agent >>/run/agent.log 2>&1 3>&- & echo $! >/run/agent.pid; sleep 6; \
         cat /run/agent.log; mount -t devtmpfs dev /dev; mkdir -p /dev/pts; mount -t devpts dev /dev/pts",
    );
    println!("{log}");
    assert!(log.contains("mote: info: waiting for ") && log.contains("/dev"), "{log}");
    let _took = world.host.connected(MOTE_BOOT);
    assert_eq!(world.host.exec(&["echo", "served"]).as_deref(), Ok("served\n"));
    world.power_off(&mut guest);
}
