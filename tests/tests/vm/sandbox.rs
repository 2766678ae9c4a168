//! A sandboxed agent with real devices.

use mote_tests::prelude::*;

#[test]
fn a_sandboxed_agent_reports_and_reconnects() {
    for (flavour, modules) in [("lxd", "yes"), ("incus", "no")] {
        // Without modules it must load all drivers before it enters the sandbox.
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
        // A report is a worker in the same sandbox, or the agent's own. Both see the whole guest.
        assert!(world.host.run(&["state", NAME]).contains("processes"));
        assert!(world.host.run(&["metrics", NAME]).contains("memory_MemTotal"));
        assert_eq!(guest.ok("mote-agent ready"), "");
        // The agent opens the port and vsock again and writes the status file.
        world.restart(flavour);
        assert_eq!(guest.ok("mote-agent get user.foo"), "bar\n");
        world.power_off(&mut guest);
    }
}

/// The same attempts as over sockets (`boot injected`), with vsock and a real `/dev`.
#[test]
fn injected_code_can_do_only_what_the_page_lists() {
    const DENIED: &str = "--deny exec,files,mounts,power";
    let program =
        tool("MOTE_INJECTED", "target/relay/x86_64-unknown-linux-gnu/release/mote-injected");
    let (world, mut guest) = World::with_shell("lxd", &Spec::default(), &[]);
    let program = program.to_str().expect("a path in UTF-8");
    world.host.ok(&["file", "push", NAME, program, "/tmp/injected", "--mode", "755"]);
    // From here on the policy denies file access.
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
