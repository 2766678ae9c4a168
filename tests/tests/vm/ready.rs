//! Ready without a word of an application, in a booted VM.

use std::time::Duration;

use mote_tests::vm::Spec;
use mote_tests::world::{MOTE_BOOT, World};
use mote_tests::{patient, wait};

#[test]
fn ready_is_said_a_second_after_the_last_condition_holds() {
    let spec = Spec { words: "mote.agent=later".into(), ..Spec::default() };
    let mut world = World::of("lxd", &spec, &[]);
    let mut guest = world.vm.guest();
    let list = "ready-when: [port 7000, init, command /bin/test -e /run/done]";
    guest.ok(&format!("echo '{list}' >/etc/mote-agent.yml"));
    guest.ok("start-stop-daemon -S -b -x /run/agent.start");
    let _took = world.host.connected(MOTE_BOOT);
    guest.ok(": >/run/done");
    std::thread::sleep(Duration::from_secs(5));
    assert_ne!(world.host.state()["status"], "Ready");
    guest.ok("nc -l -p 7000 >/dev/null 2>&1 &");
    let is_ready = || (world.host.state()["status"] == "Ready").then_some(());
    let (_, took) = wait("Ready", patient(Duration::from_secs(8)), is_ready);
    println!("Ready {took:?} after the port listens");
    // It looks no more.
    assert_eq!(guest.sh("ps | grep -c '[r]eady-when'").1, "0\n");
    world.power_off(&mut guest);
}
