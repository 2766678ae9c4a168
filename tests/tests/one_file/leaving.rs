//! Shutdown of a one-file VM, and attempts that must not shut it down.

use mote_tests::{BOOT, wait};

use crate::{END, World};

#[test]
fn the_power_button_powers_off_without_other_programs() {
    let world = World::connected("plain", "");
    world.0.vm.power_button();
    let console = world.ends();
    assert!(console.contains("info: the power button: switching off"), "{console}");
    assert!(console.contains("reboot: Power down"), "{console}");
}

#[test]
fn ctrl_alt_del_reboots_in_order() {
    let world = World::connected("plain", "mote.run=/bin/nope mote.respawn");
    world.console("/bin/nope: No such file or directory (os error 2); restarting in", 2);
    world.0.vm.ctrl_alt_del();
    let console = world.ends();
    assert!(console.contains("info: ctrl-alt-del: rebooting"), "{console}");
    assert!(console.contains("reboot: Restarting system"), "{console}");
}

#[test]
fn a_signal_powers_off_and_kills_a_stubborn_program() {
    let words = "mote.run=\"sh -c 'trap : TERM; echo deaf; while :; do sleep 1; done'\"";
    let world = World::connected("busybox", words);
    world.console("deaf", 1);
    world.sh("mkdir /run/x && mount -t iso9660 -o ro /dev/vda /run/x && ls /run/x/agent.crt");
    let _gone = world.exec(&["sh", "-c", "kill 1"]);
    let console = world.ends();
    assert!(console.contains("info: a signal: switching off"), "{console}");
    assert!(console.contains("killing processes that did not exit"), "{console}");
    assert!(!console.contains("not everything could be unmounted"), "{console}");
}

#[test]
fn the_hosts_commands_power_off_and_reboot() {
    for (command, said) in
        [("poweroff", "reboot: Power down"), ("reboot", "reboot: Restarting system")]
    {
        let world = World::connected("plain", "");
        let _gone = world.exec(&[command]);
        let console = world.ends();
        assert!(console.contains(said), "{command}: {console}");
    }
}

#[test]
fn a_build_without_init_reports_that_as_process_1() {
    let mut world = World::boot("without", "");
    let look = || Some(world.0.vm.console()).filter(|text| text.contains("process 1, but"));
    let (console, _) = wait("the line", BOOT, look);
    assert!(console.contains("built without init"), "{console}");
    std::thread::sleep(END / 10);
    assert!(!world.0.vm.has_ended() && !world.0.vm.console().contains("Kernel panic"));
}
