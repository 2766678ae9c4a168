//! `poweroff` by the host in an image without that program.

use mote_tests::prelude::*;

#[test]
fn the_host_powers_off_an_image_without_the_program() {
    let (mut world, mut guest) = World::with_shell("lxd", &Spec::default(), &[]);
    let command = ["exec", NAME, "-T", "-n", "--env", "PATH=/nowhere", "--", "poweroff"];
    // Process 1 is a shell.
    let _refused = world.host.try_run(&command).expect_err("an unknown init system");
    contains(guest.ok("cat /run/agent.log"), &["cannot ask process 1 (/bin/busybox): unknown"]);
    guest.ok("mkfifo /run/initctl");
    let init =
        "head -c 9 >/run/asked; cat >/dev/null; echo level $(tail -c 1 /run/asked) >/dev/console";
    guest.ok(&format!("sh -c '{init}; poweroff -f' </run/initctl >/dev/null 2>&1 & sleep 0.1"));
    assert_eq!(world.host.try_run(&command), Ok(String::new()));
    world.vm.ended(BOOT);
    contains(world.vm.console(), &["level 0", "reboot: Power down"]);
}
