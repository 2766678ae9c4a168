//! Files that a host provides at start: templates, cloud-init's seed, and systemd's credentials in
//! a guest without systemd.

use mote_tests::{BOOT, Column, Guest, MOTE_BOOT, Scratch, Spec, Vm, World, put, world};

/// Returns modes, owners, texts and hostname, as the guest's own tools report them.
fn templates(flavour: &str, spec: &Spec, connected: fn(&mut World) -> Guest) -> String {
    let mut world = World::prepare(flavour, spec, &[], |host| {
        let put = |path: &str, text: &str| put(host.share.join(path), text);
        // `uptime` exists before the agent starts.
        put(
            "files/metadata.yaml",
            "architecture: x86_64\nproperties: {os: debian}\ntemplates:\n  /etc/hostname:\n    when:\n    \
             - create\n    create_only: false\n    template: h\n    properties: {}\n  \
             /run/mote-test/uptime:\n    template: t\n    mode: \"0600\"\n    uid: \"7\"\n  \
             /run/mote-test/a/b/new:\n    template: t\n    mode: \"640\"\n    uid: \"7\"\n    gid: \"8\"\n  \
             /run/mote-test/plain: {template: t, create_only: true}\n  /init: {template: t, \
             create_only: true}\n  /run/mote-test/notdue: {template: other}\n",
        );
        put("files/h.out", "named-by-host\n");
        put("files/t.out", "text\n");
    });
    let mut guest = connected(&mut world);
    let told = guest.ok(
        "cd /run/mote-test; for f in uptime a a/b a/b/new plain /etc /etc/hostname /init; do stat -c \
         '%n %a %u %g' $f; done; cat uptime a/b/new plain /etc/hostname /proc/sys/kernel/hostname; \
         ls notdue 2>/dev/null; head -c 9 /init",
    );
    world.power_off(&mut guest);
    told
}

#[test]
fn templates_give_the_same_files_as_the_go_agents() {
    for agent in [Column::LxdAgent, Column::IncusAgent] {
        let (flavour, title) = (agent.flavour(), agent.title());
        let theirs = templates(flavour, &Spec { memory: 256, ..world::spec(agent) }, |world| {
            world.connected(BOOT);
            world.vm.guest()
        });
        let ours =
            templates(flavour, &Spec { port: agent.port(), ..Spec::default() }, World::shell);
        assert_eq!(ours, theirs, "{title}");
        println!("{title}:\n{ours}");
    }
}

/// A seed on a disk (here a share), in a system whose reboot command is missing, so the kernel
/// itself reboots. QEMU then ends, and the next boot finds the same seed.
#[test]
fn a_new_seed_reboots_once_before_any_announcement() {
    let disk = Scratch::new();
    let words = "mote.agent=no".into();
    let spec = Spec { shares: vec![("var", disk.0.clone())], words, ..Spec::default() };
    let mut world = World::prepare("lxd", &spec, &[], |host| {
        let seed = "templates: {/var/lib/cloud/seed/nocloud-net/meta-data: {template: s}}";
        put(host.share.join("files/metadata.yaml"), seed);
        put(host.share.join("files/s.out"), "instance-id: a\n");
    });
    let start = "modprobe virtiofs; mkdir -p /var /etc/cloud; mount -t virtiofs var /var; rm -f \
                 /bin/reboot; mote-agent 2>/run/agent.log & echo $! >/run/agent.pid";
    let mut guest = world.vm.guest();
    guest.send(start);
    world.vm.ended(MOTE_BOOT);
    assert!(!world.host.log().contains("agent STARTED"), "{}", world.host.log());
    let seed = disk.0.join("lib/cloud/seed/nocloud-net/meta-data");
    assert_eq!(std::fs::read_to_string(seed).unwrap(), "instance-id: a\n");
    let directory = world.scratch.0.clone();
    drop(world.vm);
    let mut vm = Vm::boot(&directory, &spec, &world.host.share);
    let mut guest = vm.guest();
    guest.ok(start);
    let _took = world.host.connected(MOTE_BOOT);
    assert!(!guest.ok("cat /run/agent.log").contains("rebooting"));
    guest.send("poweroff");
    vm.ended(MOTE_BOOT);
}

#[test]
fn a_guest_without_systemd_has_keys_and_name_from_its_host() {
    if !mote_tests::vm::has_smbios() {
        return mote_tests::skipped("SMBIOS");
    }
    let values = [
        "io.systemd.credential:system.hostname=web1",
        // ssh-ed25519 AAAA a@b
        "io.systemd.credential.binary:ssh.authorized_keys.root=c3NoLWVkMjU1MTkgQUFBQSBhQGIK",
        "io.systemd.credential:mote-agent.yml=features: {exec: false}",
    ];
    let extra =
        values.iter().flat_map(|value| ["-smbios".into(), format!("type=11,value={value}")]);
    let (port, extra) = ("org.linuxcontainers.incus", extra.collect());
    let mut world = World::of("incus", &Spec { port, extra, ..Spec::default() }, &[]);
    let mut guest = world.shell();
    assert_eq!(guest.ok("cat /proc/sys/kernel/hostname"), "web1\n");
    assert_eq!(guest.ok("cat /root/.ssh/authorized_keys").trim_end(), "ssh-ed25519 AAAA a@b");
    assert_eq!(guest.ok("stat -c %a:%u /root/.ssh /root/.ssh/authorized_keys"), "700:0\n600:0\n");
    // A host cannot set the policy.
    assert_eq!(world.host.exec(&["/bin/echo", "a"]).as_deref(), Ok("a\n"));
    world.power_off(&mut guest);
}
