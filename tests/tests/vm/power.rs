//! `poweroff` by the host in an image without that program.

use mote_tests::prelude::*;

#[test]
fn the_host_powers_off_an_image_without_the_program() {
    let (mut world, mut guest) = World::with_shell("lxd", &Spec::default(), &[]);
    let command = ["exec", NAME, "-T", "-n", "--env", "PATH=/nowhere", "--", "poweroff"];
    // Process 1 is a shell.
    let _refused = world.host.try_run(&command).expect_err("an unknown init system");
    contains(guest.ok("cat /run/agent.log"), &["cannot ask process 1 (/bin/busybox): unknown"]);
    // Opened before the host asks. A request has 384 bytes.
    let init = "dd bs=384 count=1 of=/run/asked; echo level $(head -c 9 /run/asked | tail -c 1) >/dev/console; poweroff -f";
    guest.ok(&format!(
        "mkfifo /run/initctl; exec 5<>/run/initctl; sh -c '{init}' <&5 >/dev/null 2>&1 &"
    ));
    assert_eq!(world.host.try_run(&command), Ok(String::new()));
    world.vm.ended(BOOT);
    contains(world.vm.console(), &["level 0", "reboot: Power down"]);
}
