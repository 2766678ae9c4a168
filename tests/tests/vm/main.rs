//! The booted VM: everything that uses serial port, vsock, mounts and processes.

use mote_tests::prelude::*;

mod early;
mod freeze;
mod hotplug;
mod recipe;
mod resume;
mod run;
mod shares;

#[test]
fn a_killed_host_regains_the_agent_in_two_seconds() {
    // Restart before the PUT: the host has read STARTED but does not call, and no file names it.
    let mut world = World::prepare("lxd", &Spec::default(), &[], |host| {
        host.ok(&["fault", NAME, "deny-put"]);
        fs::remove_file(host.share.join("agent.conf")).unwrap();
    });
    until("STARTED to be read", MOTE_BOOT, || world.host.state()["started"] == true);
    assert_eq!(world.host.state()["last_put"], Value::Null);
    assert!(!world.vm.console().contains("CONNECTED"), "{}", world.vm.console());
    world.restart("before PUT");
    let mut guest = world.shell();
    guest.ok("mote-agent ready");
    // After a restart while CONNECTED, the agent repeats Ready, too.
    world.restart("connected");
    until("Ready", BACK, || world.host.state()["status"] == "Ready");
    world.power_off(&mut guest);
}

#[test]
fn follows_connect_on_a_socket_and_ignores_an_echo() {
    for shared in [false, true] {
        let extra: &[&str] = if shared { &["--shared-memory"] } else { &[] };
        let (mut world, mut guest) =
            World::with_shell("lxd", &Spec { socket: true, ..Spec::default() }, extra);
        until("the log", BACK, || world.vm.console().contains("CONNECTED 2:"));
        assert_eq!(guest.ok("mote-agent get user.foo"), "bar\n");
        guest.ok("mote-agent ready");
        world.restart("CONNECT");
        until("Ready", BACK, || world.host.state()["status"] == "Ready");
        assert_eq!(guest.ok("mote-agent get user.foo"), "bar\n");
        world.power_off(&mut guest);
    }
}

/// Limit for an idle agent to release spare blocks and stack. It does so within 0.9 s, long before
/// its port wakes it.
const RESTED: Duration = Duration::from_secs(3);

#[test]
fn stays_small_and_boots_in_little_memory() {
    let words = "mote.log=kernel".into();
    let spec = Spec { memory: vm::machine().little, words, ..Spec::default() };
    let (world, mut guest) = World::with_shell("lxd", &spec, &[]);
    let power_on = world.begun.elapsed();
    let started = proc::started(&guest.ok("cat /proc/$(cat /run/agent.pid)/stat"));
    let agent_start = logged_at(&mut guest, "mote: info: CONNECTED") - started;
    let program = agent().metadata().expect("the agent").len();
    // README's figures are those of rustup's toolchain. Debian's makes a larger program. The kernel
    // maps code in blocks of 64 kB and chooses where the program begins: 872 to 940 kB in 40 boots.
    let limit = if cost::claimed("binary, bytes").abs_diff(program) * 100 < program {
        cost::claimed("memory (PSS) 2 s after CONNECTED, kB") * 110 / 100
    } else {
        program / 1024 + 205
    };
    let rested = |guest: &mut Guest, limit| {
        let pss = |guest: &mut Guest| {
            let text = guest.ok("cat /proc/$(cat /run/agent.pid)/smaps_rollup");
            Some(proc::kilobytes(&text, "Pss:").unwrap()).filter(|now| *now <= limit)
        };
        wait(&format!("a PSS of at most {limit} kB"), patient(RESTED), || pss(guest)).0
    };
    let idle = rested(&mut guest, limit);
    let calls = "i=0; while [ $i -lt 100 ]; do mote-agent get user.foo >/dev/null || exit 1; i=$((i+1)); done";
    guest.ok(calls);
    let after = rested(&mut guest, idle + 40);
    let threads = guest.ok("ls /proc/$(cat /run/agent.pid)/task | wc -l");
    println!("PSS idle {idle} kB of {limit}, program {program} B, after 100 calls {after} kB");
    assert_eq!(threads.trim(), "1");
    exits(guest.sh("mote-agent --check"), 0, &["vsock: context id 3"]);
    // The OOM killer spares the agent, not the host's commands.
    assert_eq!(guest.ok("cat /proc/$(cat /run/agent.pid)/oom_score_adj"), "-900\n");
    assert_eq!(world.host.exec(&["cat", "/proc/self/oom_score_adj"]).as_deref(), Ok("0\n"));
    // The agent unmounts the config disk after reading it.
    assert_eq!(guest.sh("grep -c iso9660 /proc/mounts").1, "0\n");
    let [architecture, release] = ["-m", "-r"].map(|what| guest.ok(&format!("uname {what}")));
    world.power_off(&mut guest);
    if ["aarch64", "riscv64"].contains(&architecture.trim()) {
        let booted = format!("busybox, initramfs; Linux {}; QEMU `virt`", release.trim());
        pages::way(architecture.trim(), &booted, [agent_start, power_on]);
    }
}

#[test]
fn without_vsock_incus_learns_the_state_through_the_port() {
    let spec = Spec { ring: 16_384, vsock: false, ..Spec::default() };
    let mut world = World::of("incus", &spec, &[]);
    let state = || world.host.state()["serial_state"].clone();
    let (state, _) =
        wait("the state", MOTE_BOOT, || Some(state()).filter(|state| !state.is_null()));
    assert!(state["processes"].as_u64() > Some(1), "{state}");
    assert!(state["memory"]["total"].as_u64() > Some(48 << 20), "{state}");
    let mut guest = world.vm.guest();
    assert!(guest.ok("cat /run/agent.log").contains("only through the status port"));
    guest.ok("test ! -e /dev/incus/sock");
    exits(guest.sh("mote-agent status"), 4, &["last_error: no vsock: "]);
    exits(guest.sh("mote-agent ready 2>&1"), 3, &["it cannot reach the host: no vsock: "]);
    exits(guest.sh("mote-agent --check"), 1, &["missing  vsock: no vsock device in this VM"]);
    let info = world.host.run(&["info", NAME]);
    let words = "the agent reports itself only through the status port: no vsock in the guest";
    assert!(info.contains(words) && info.contains("its state, as JSON"), "{info}");
    world.power_off(&mut guest);
}

/// Returns the time of a line in the kernel's log, since power-on.
fn logged_at(guest: &mut Guest, line: &str) -> Duration {
    let text = guest.ok(&format!("dmesg | grep -F '{line}' | head -n 1"));
    let time = text.trim_start_matches('[').split(']').next().unwrap_or_default();
    let seconds = time.trim().parse().unwrap_or_else(|_| panic!("no time of {line:?}: {text}"));
    Duration::from_secs_f64(seconds)
}

// The host runs `poweroff` in an image that has no such program.

#[test]
fn the_host_powers_off_an_image_without_the_program() {
    let (mut world, mut guest) = World::with_shell("lxd", &Spec::default(), &[]);
    let command = ["exec", NAME, "-T", "-n", "--env", "PATH=/nowhere", "--", "poweroff"];
    // In this image process 1 is a shell, so the agent cannot power off.
    let _refused = world.host.try_run(&command).expect_err("an unknown init system");
    contains(guest.ok("cat /run/agent.log"), &["cannot ask process 1 (/bin/busybox): unknown"]);
    // The FIFO is opened before the host asks. A request has 384 bytes.
    let init = "dd bs=384 count=1 of=/run/asked; echo level $(head -c 9 /run/asked | tail -c 1) >/dev/console; poweroff -f";
    guest.ok(&format!(
        "mkfifo /run/initctl; exec 5<>/run/initctl; sh -c '{init}' <&5 >/dev/null 2>&1 &"
    ));
    assert_eq!(world.host.try_run(&command), Ok(String::new()));
    world.vm.ended(BOOT);
    contains(world.vm.console(), &["level 0", "reboot: Power down"]);
}

// A sandboxed agent with real devices.

#[test]
fn a_sandboxed_agent_reports_and_reconnects() {
    for (flavour, modules) in [("lxd", "yes"), ("incus", "no")] {
        // With no module loaded, the agent must load all drivers before it enters the sandbox.
        let words = format!(
            "mote.args=--deny,exec,--deny,files,--deny,mounts,--deny,power mote.modules={modules}"
        );
        let (mut world, mut guest) =
            World::with_shell(flavour, &Spec { words, ..Spec::default() }, &[]);
        let status = guest.ok("mote-agent status");
        assert!(status.contains("; in a sandbox\n"), "{status}");
        assert!(guest.ok("cat /run/agent.log").contains("info: in a sandbox\n"));
        let checked = guest.ok("mote-agent --check --deny exec,files,mounts,power");
        assert!(checked.contains("in a sandbox\n"), "{checked}");
        // The agent or a worker in the same sandbox makes the report. Both see the whole guest.
        assert!(world.host.run(&["state", NAME]).contains("processes"));
        assert!(world.host.run(&["metrics", NAME]).contains("memory_MemTotal"));
        assert_eq!(guest.ok("mote-agent ready"), "");
        // The agent opens the port and vsock again and writes the status file.
        world.restart(flavour);
        assert_eq!(guest.ok("mote-agent get user.foo"), "bar\n");
        world.power_off(&mut guest);
    }
}

/// Repeats the attempts that `boot injected` makes over sockets, with vsock and a real `/dev`.
#[test]
fn injected_code_can_do_only_what_the_page_lists() {
    const DENIED: &str = "--deny exec,files,mounts,power";
    let program =
        tool("MOTE_INJECTED", "target/relay/x86_64-unknown-linux-gnu/release/mote-injected");
    let (world, mut guest) = World::with_shell("lxd", &Spec::default(), &[]);
    let program = program.to_str().expect("a path in UTF-8");
    world.host.ok(&["file", "push", NAME, program, "/tmp/injected", "--mode", "755"]);
    // From here on, the policy denies file access.
    guest.ok(&format!("sed -i 's/exec mote-agent/& {DENIED}/' /run/agent.start"));
    guest.ok("kill $(cat /run/agent.pid)");
    until("its end", MOTE_BOOT, || {
        guest.ok("cat /run/agent.log").contains("agent ended with exit code 0")
    });
    guest.ok("start-stop-daemon -S -b -x /run/agent.start");
    until("an agent in its sandbox", MOTE_BOOT, || {
        guest.ok("mote-agent status || true").contains("; in a sandbox\n")
    });
    guest.ok("/tmp/injected $(cat /run/agent.pid) 2>&1");
    assert_eq!(guest.ok("mote-agent get user.foo"), "bar\n");
    assert!(world.host.run(&["state", NAME]).contains("processes"));
    world.power_off(&mut guest);
}
