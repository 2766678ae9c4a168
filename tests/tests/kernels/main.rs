//! Features that depend on the kernel, with the kernel of `MOTE_KERNEL` and `MOTE_IMAGE`:
//! `scripts/test kernels`. Writes a row of `docs/results/kernels.md`.

use mote_tests::{NAME, Scratch, Share, Spec, World, pages, put};

#[test]
fn everything_works_with_this_kernel() {
    let from = std::env::var("MOTE_KERNEL").expect("MOTE_KERNEL: scripts/test kernels sets it");
    let shared = Scratch::new();
    put(shared.0.join("file"), "shared\n");
    let mut power_on = None;
    for flavour in ["lxd", "incus"] {
        let spec = Spec {
            share: Share::Virtiofs,
            nic: Some("00:16:3e:aa:bb:cc"),
            shares: vec![("lxd_a", shared.0.clone())],
            ..Spec::default()
        };
        let mut world = World::prepare(flavour, &spec, &[], |host| {
            put(
                host.share.join("nics/eth0.json"),
                r#"{"device_name":"eth0","nic_name":"lan0","mac_address":"00:16:3e:aa:bb:cc","mtu":1400}"#,
            );
            put(
                host.share.join("agent-mounts.json"),
                r#"[{"source":"lxd_a","target":"/mnt/a","fstype":"virtiofs","options":[]}]"#,
            );
        });
        let mut guest = world.shell();
        power_on.get_or_insert_with(|| world.begun.elapsed());
        assert_eq!(guest.ok("mote-agent get user.foo"), "bar\n");
        assert_eq!(guest.ok("cat /sys/class/net/lan0/mtu"), "1400\n");
        assert_eq!(guest.ok("cat /mnt/a/file"), "shared\n");
        assert_eq!(world.host.exec(&["echo", "a command"]).as_deref(), Ok("a command\n"));
        let path = world.scratch.0.join("pushed").display().to_string();
        put(&path, "pushed\n");
        world.host.ok(&["file", "push", NAME, &path, "/tmp/pushed"]);
        assert_eq!(guest.ok("cat /tmp/pushed"), "pushed\n");
        assert!(world.host.run(&["state", NAME]).contains("lan0"));
        assert!(world.host.run(&["metrics", NAME]).contains("memory_MemTotal"));
        assert_eq!(guest.ok("mote-agent ready"), "");
        world.restart(flavour);
        world.power_off(&mut guest);
    }
    let words = "mote.args=--deny,exec,--deny,files,--deny,mounts,--deny,power".into();
    let mut world = World::of("lxd", &Spec { words, ..Spec::default() }, &[]);
    let mut guest = world.shell();
    let log = guest.ok("cat /run/agent.log");
    let sandbox = log
        .lines()
        .find(|line| line.contains("in a sandbox"))
        .and_then(|line| line.rsplit(": ").next());
    let kernel = guest.ok("uname -r").trim().to_owned();
    world.power_off(&mut guest);
    let sandbox = sandbox.unwrap_or_else(|| panic!("{log}")).trim();
    pages::kernel(&from, &kernel, sandbox, power_on.expect("a boot"));
}
