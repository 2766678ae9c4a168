//! What ring answers on the CPU of the VM, which has fewer instructions than this machine's (no AES, no ADX), or is an
//! aarch64: other functions of it run there.

use mote_tests::host::NAME;
use mote_tests::vm::Spec;
use mote_tests::world::{MOTE_BOOT, World};
use mote_tests::{patient, tool, wait};

#[test]
fn ring_as_it_is_linked_gives_the_known_answers() {
    let program = tool("MOTE_VECTORS", "target/vectors");
    let mut world = World::of("lxd", &Spec { memory: 192, ..Spec::default() }, &[]);
    let mut guest = world.shell();
    let path = format!("{NAME}/run/vectors");
    world.host.ok(&["file", "push", "--mode", "700", program.to_str().unwrap(), &path]);
    // Thousands of multiplications in C under emulation may take longer than the guest's shell is waited for.
    guest.ok("(/run/vectors >/run/answers 2>&1; echo $? >/run/code) &");
    let (code, took) = wait("the answers", patient(MOTE_BOOT) * 4, || {
        guest.sh("cat /run/code 2>/dev/null").1.trim().parse::<i32>().ok()
    });
    let answers = guest.ok("cat /run/answers");
    assert_eq!(code, 0, "{answers}");
    assert_eq!(answers.lines().count(), 12, "{answers}");
    println!("{took:?}:\n{answers}");
    world.power_off(&mut guest);
}
