//! An agent in its sandbox, with real devices.

use mote_tests::host::NAME;
use mote_tests::vm::Spec;

use crate::world::World;

#[test]
fn in_its_sandbox_the_agent_reports_and_finds_its_host_again() {
    for (flavour, port, modules) in
        [("lxd", "com.canonical.lxd", "yes"), ("incus", "org.linuxcontainers.incus", "no")]
    {
        // Without modules it loads all drivers itself, before.
        let words =
            format!("mote.args=--deny,exec,--deny,files,--deny,mounts mote.modules={modules}");
        let mut world = World::boot(flavour, &Spec { port, words, ..Spec::default() }, &[]);
        let mut guest = world.connected();
        let status = guest.ok("mote-agent status");
        assert!(status.contains("; in a sandbox\n"), "{status}");
        assert!(guest.ok("cat /run/agent.log").contains("info: in a sandbox\n"));
        let process = guest.ok("cat /proc/$(cat /run/agent.pid)/status");
        for fact in ["CapEff:\t0000000000000000\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n"] {
            assert!(process.contains(fact), "{process}");
        }
        let checked = guest.ok("mote-agent --check --deny exec --deny files --deny mounts");
        assert!(checked.contains("in a sandbox\n"), "{checked}");
        // Reports are workers in the same sandbox; nothing of the guest is hidden from them.
        let state = world.host.run(&["state", NAME]);
        for part in ["lo", "memory", "processes"] {
            assert!(state.contains(part), "{part}: {state}");
        }
        assert!(world.host.run(&["metrics", NAME]).contains("memory_MemTotal"));
        assert_eq!(guest.ok("mote-agent ready"), "");
        // The port and vsock are opened again, and the status file written.
        world.restart(flavour);
        assert_eq!(guest.ok("mote-agent get user.foo"), "bar\n");
        world.power_off(&mut guest);
    }
}
