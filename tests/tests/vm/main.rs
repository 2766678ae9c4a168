//! The booted VM: everything that uses serial port, vsock, mounts and processes.

mod bad_images;
mod early;
mod freeze;
mod hotplug;
mod recipe;
mod resume;
mod run;
mod sandbox;
mod shares;
mod suspend;
mod templates;
mod way;

use std::time::Duration;

use mote_tests::cost::front_page;
use mote_tests::proc::kilobytes;
use mote_tests::vm::little_memory;
use mote_tests::{BACK, Guest, MOTE_BOOT, NAME, Spec, World, agent, patient, wait};

#[test]
fn a_killed_host_regains_the_agent_in_two_seconds() {
    // Before the PUT: the host has read STARTED but does not call, and no file contains its
    // address.
    let mut world = World::prepare("lxd", &Spec::default(), &[], |host| {
        host.ok(&["fault", NAME, "deny-put"]);
        std::fs::remove_file(host.share.join("agent.conf")).unwrap();
    });
    wait("STARTED to be read", MOTE_BOOT, || (world.host.state()["started"] == true).then_some(()));
    assert_eq!(world.host.state()["last_put"], serde_json::Value::Null);
    assert!(!world.vm.console().contains("CONNECTED"), "{}", world.vm.console());
    world.restart("before PUT");
    let mut guest = world.shell();
    guest.ok("mote-agent ready");
    // While CONNECTED. Ready is repeated too.
    let took = world.restart("connected");
    println!("killed while CONNECTED: back after {took:?}");
    wait("Ready", BACK, || (world.host.state()["status"] == "Ready").then_some(()));
    world.power_off(&mut guest);
}

#[test]
fn follows_connect_on_a_socket_and_ignores_an_echo() {
    for shared in [false, true] {
        let extra: &[&str] = if shared { &["--shared-memory"] } else { &[] };
        let mut world = World::of("lxd", &Spec { socket: true, ..Spec::default() }, extra);
        let mut guest = world.shell();
        wait("the log", BACK, || world.vm.console().contains("CONNECTED 2:").then_some(()));
        assert_eq!(guest.ok("mote-agent get user.foo"), "bar\n");
        guest.ok("mote-agent ready");
        let took = world.restart("CONNECT");
        println!("CONNECT, shared {shared}: back after {took:?}");
        wait("Ready", BACK, || (world.host.state()["status"] == "Ready").then_some(()));
        assert_eq!(guest.ok("mote-agent get user.foo"), "bar\n");
        world.power_off(&mut guest);
    }
}

/// The agent releases spare blocks and stack within 0.9 s of rest, long before its port wakes it.
const RESTED: Duration = Duration::from_secs(3);

#[test]
fn stays_small_and_boots_in_little_memory() {
    let spec = Spec { memory: little_memory(), ..Spec::default() };
    let mut world = World::of("lxd", &spec, &[]);
    let mut guest = world.shell();
    let pss = |guest: &mut Guest| {
        let text = guest.ok("cat /proc/$(cat /run/agent.pid)/smaps_rollup");
        kilobytes(&text, "Pss:").unwrap()
    };
    std::thread::sleep(Duration::from_secs(2));
    let idle = pss(&mut guest);
    let calls = "i=0; while [ $i -lt 100 ]; do mote-agent get user.foo >/dev/null || exit 1; i=$((i+1)); done";
    guest.ok(calls);
    let rested = |guest: &mut Guest| Some(pss(guest)).filter(|after| *after <= idle + 40);
    let (after, _) = wait("the memory of the calls", patient(RESTED), || rested(&mut guest));
    let threads = guest.ok("ls /proc/$(cat /run/agent.pid)/task | wc -l");
    let threads = threads.trim();
    println!("PSS idle {idle} kB, after 100 calls {after} kB, threads {threads}");
    assert_eq!(threads, "1");
    let bytes = agent().metadata().expect("the agent").len();
    // Debian's toolchain makes a larger program. `scripts/size --check` limits its size.
    if front_page::agrees("binary, bytes", bytes) {
        front_page::holds("memory (PSS) 2 s after CONNECTED, kB", idle);
    }
    let program = bytes / 1024;
    // Without the program's own bytes, which depend on the toolchain and have their own limit.
    assert!(idle < program + 205, "{idle} kB, of them {program} the program's");
    let check = guest.sh("mote-agent --check");
    assert_eq!(check.0, 0, "{}", check.1);
    assert!(check.1.contains("vsock: context id 3"), "{}", check.1);
    // The OOM killer spares the agent, not the host's commands.
    assert_eq!(guest.ok("cat /proc/$(cat /run/agent.pid)/oom_score_adj"), "-900\n");
    let command = world.host.exec(&["cat", "/proc/self/oom_score_adj"]);
    assert_eq!(command.as_deref(), Ok("0\n"));
    // The agent unmounts the config disk after reading it.
    assert_eq!(guest.sh("grep -c iso9660 /proc/mounts").1, "0\n");
    world.power_off(&mut guest);
}

#[test]
fn without_vsock_incus_learns_the_state_through_the_port() {
    let port = "org.linuxcontainers.incus";
    let spec = Spec { port, ring: 16_384, vsock: false, ..Spec::default() };
    let mut world = World::of("incus", &spec, &[]);
    let state = || world.host.state()["serial_state"].clone();
    let (state, _) =
        wait("the state", MOTE_BOOT, || Some(state()).filter(|state| !state.is_null()));
    assert!(state["processes"].as_u64() > Some(1), "{state}");
    assert!(state["memory"]["total"].as_u64() > Some(48 << 20), "{state}");
    let mut guest = world.vm.guest();
    assert!(guest.ok("cat /run/agent.log").contains("only through the status port"));
    guest.ok("test ! -e /dev/incus/sock");
    let (code, status) = guest.sh("mote-agent status");
    assert!(code == 4 && status.contains("last_error: no vsock: "), "{status}");
    let (code, text) = guest.sh("mote-agent ready 2>&1");
    assert!(code == 3 && text.contains("it cannot reach the host: no vsock: "), "{code} {text}");
    let (code, text) = guest.sh("mote-agent --check");
    assert!(code == 1 && text.contains("missing  vsock: no vsock device in this VM"), "{text}");
    let info = world.host.run(&["info", NAME]);
    let words = "the agent reports itself only through the status port: no vsock in the guest";
    assert!(info.contains(words) && info.contains("its state, as JSON"), "{info}");
    world.power_off(&mut guest);
}
