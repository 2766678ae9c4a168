//! Directories of the host in the guest, at start and hot-plugged.

use mote_tests::prelude::*;

fn directory(parent: &Path, name: &str) -> PathBuf {
    let path = parent.join(name);
    put(path.join("file"), format!("in {name}\n"));
    path
}

#[test]
fn applies_the_hosts_files_before_any_announcement() {
    let mut spec =
        Spec { share: Share::Virtiofs, nic: Some("00:16:3e:aa:bb:cc"), ..Spec::default() };
    let shares = Scratch::new();
    for tag in ["lxd_a", "lxd_old"] {
        spec.shares.push((tag, directory(&shares.0, tag)));
    }
    let mut world = World::prepare("lxd", &spec, &[], |host| {
        let put = |path: &str, text: &str| put(host.share.join(path), text);
        put(
            "files/metadata.yaml",
            "templates:\n  /etc/hostname:\n    when: [start]\n    template: h\n",
        );
        put("files/h.out", "guest-of-lxd\n");
        put(
            "nics/eth0.json",
            r#"{"device_name":"eth0","nic_name":"lan0","mac_address":"00:16:3e:aa:bb:cc","mtu":1400}"#,
        );
        put(
            "agent-mounts.json",
            r#"[{"source":"lxd_a","target":"/mnt/with space","fstype":"virtiofs","options":["ro"]},
                {"source":"lxd_old","target":"mnt/old","fstype":"9p","options":["trans=virtio,msize=33554432"]},
                {"source":"lxd_none","target":"/mnt/none","fstype":"virtiofs","options":null}]"#,
        );
    });
    let mut guest = world.shell();
    assert_eq!(
        guest.ok("cat /proc/sys/kernel/hostname /etc/hostname"),
        "guest-of-lxd\nguest-of-lxd\n"
    );
    assert_eq!(guest.ok("cat /sys/class/net/lan0/mtu"), "1400\n");
    assert_eq!(guest.ok("cat '/mnt/with space/file'"), "in lxd_a\n");
    assert_ne!(guest.sh("touch '/mnt/with space/new'").0, 0, "read-only");
    assert_eq!(
        guest.ok("cat /mnt/old/file && touch /mnt/old/new && ls -1 /mnt/old"),
        "in lxd_old\nfile\nnew\n"
    );
    let log = guest.ok("cat /run/agent.log");
    assert!(log.contains("mount: lxd_none on /mnt/none: virtiofs: Invalid argument"), "{log}");
    assert!(
        log.find("audit: mount \"mounted lxd_a on").unwrap() < log.find("info: STARTED").unwrap(),
        "{log}"
    );
    a_share_is_plugged_in(&mut world, &mut guest);
    // A mount that is not a share, and a path that leads out of the directory.
    for path in ["path=/tmp", "path=/mnt/../tmp"] {
        let added = ["device-add", NAME, "bad", "type=disk", path, "source=/srv"];
        let answer = world.host.try_run(&added);
        let climbs = path.contains("..");
        let is_said = answer.is_err_and(|why| why.contains("Path must not contain '..'"));
        assert_eq!(is_said, climbs, "{path}");
        world.host.ok(&["device-remove", NAME, "bad"]);
    }
    assert_eq!(guest.sh("grep -c ' /tmp ' /proc/mounts").1, "1\n");
    world.power_off(&mut guest);
}

/// Plugs a share in after its event, because the event may precede the device (incus#1881).
fn plug_after_event(world: &mut World, name: &str, path: &str, meanwhile: impl FnOnce()) {
    let source = directory(&world.host.directory, name);
    let path = format!("path={path}");
    thread::scope(|scope| {
        let add = ["device-add", NAME, name, "type=disk", &path, "source=/srv"];
        let host = &world.host;
        let told = scope.spawn(move || host.try_run(&add));
        thread::sleep(Duration::from_secs(1));
        meanwhile();
        world.vm.plug(&format!("lxd_{name}"), &source);
        // The call fails if the guest sees the device after the host's time limit.
        let _answer = told.join().expect("a thread");
    });
}

fn a_share_is_plugged_in(world: &mut World, guest: &mut Guest) {
    plug_after_event(world, "plug", "/mnt/plug", || {});
    until("the share", MOTE_BOOT, || guest.sh("cat /mnt/plug/file").1 == "in plug\n");
    world.host.ok(&["device-remove", NAME, "plug"]);
    assert_eq!(guest.sh("grep -c /mnt/plug /proc/mounts").1, "0\n");
    assert_eq!(guest.ok("ls -d /mnt/plug"), "/mnt/plug\n");
}

#[test]
fn mounts_incus_shares_after_the_answer_and_unmounts_by_tag() {
    let shares = Scratch::new();
    let shared = vec![("incus_plug", directory(&shares.0, "plug"))];
    let (world, mut guest) =
        World::with_shell("incus", &Spec { shares: shared, ..Spec::default() }, &[]);
    // The agent follows symbolic links that belong to root.
    guest.ok("mkdir /mnt /srv && ln -s /srv /mnt/link");
    world.host.ok(&["device-add", NAME, "plug", "type=disk", "path=/mnt/link/x", "source=/srv"]);
    until("the share", MOTE_BOOT, || guest.sh("cat /srv/x/file").1 == "in plug\n");
    world.host.ok(&["device-remove", NAME, "plug"]);
    until("no share", MOTE_BOOT, || guest.sh("grep -c incus_plug /proc/mounts").1 == "0\n");
    world.power_off(&mut guest);
}

#[test]
fn a_user_cannot_redirect_a_share() {
    let (mut world, mut guest) = World::with_shell("lxd", &Spec::default(), &[]);
    guest.ok("mkdir -p /etc/cron.d");
    guest.ok("su user -c 'cd && ln -s /etc/cron.d link && mkdir d'");
    world.vm.plug("lxd_link", &directory(&world.host.directory, "linked"));
    let add = ["device-add", NAME, "link", "type=disk", "path=/home/user/link", "source=/srv"];
    let refused = "the symbolic link /home/user/link is not followed";
    contains(world.host.try_run(&add).unwrap_err(), &[refused]);
    let logged = |guest: &mut Guest, line: &str| {
        until(line, MOTE_BOOT, || guest.ok("cat /run/agent.log").contains(line));
    };
    logged(&mut guest, refused);
    // The user replaces the directory with a link while the agent waits for the device.
    plug_after_event(&mut world, "swap", "/home/user/d", || {
        guest.ok("su user -c 'cd && mv d e && ln -s /etc/cron.d d'");
    });
    logged(&mut guest, "lxd_swap on /home/user/d: the directory was moved");
    assert_eq!(guest.sh("grep -c virtiofs /proc/mounts").1, "0\n");
    assert_eq!(guest.ok("ls /etc/cron.d /home/user/e"), "/etc/cron.d:\n\n/home/user/e:\n");
    world.power_off(&mut guest);
}

/// The guest runs in an initramfs, where `pivot_root` cannot replace the root directory. Each
/// session has a mount namespace that ends with the session.
#[test]
fn shows_the_host_only_files_below_a_directory() {
    let spec = Spec { words: "mote.agent=no".into(), ..Spec::default() };
    let mut world = World::of("lxd", &spec, &[]);
    let mut guest = world.vm.guest();
    guest.ok(
        "mkdir -p /etc /srv/shown/sub; echo text >/srv/shown/a; echo secret >/srv/secret; ln -s ../secret \
         /srv/shown/link; echo 'features: {guestapi: true, files: {below: [/srv/shown]}}' \
         >/etc/mote-agent.yml; mote-agent 2>/run/agent.log & echo $! >/run/agent.pid",
    );
    let _took = world.host.connected(MOTE_BOOT);
    let copy = world.scratch.0.join("copy");
    let copy = copy.to_str().unwrap();
    world.host.ok(&["file", "pull", &format!("{NAME}/srv/shown/a"), copy]);
    assert_eq!(fs::read_to_string(copy).unwrap(), "text\n");
    world.host.ok(&["file", "push", copy, &format!("{NAME}/srv/shown/sub/b")]);
    assert_eq!(guest.ok("cat /srv/shown/sub/b"), "text\n");
    for path in ["/srv/secret", "/srv/shown/link", "/srv/shown/../secret", "/etc/mote-agent.yml"] {
        let why = world.host.try_run(&["file", "pull", &format!("{NAME}{path}"), copy]);
        assert!(why.unwrap_err().contains("the guest's policy hides it"), "{path}");
    }
    assert_eq!(guest.sh("grep -c /run/mote /proc/mounts").1, "0\n");
    contains(guest.ok("mote-agent status"), &["; limited: files\n"]);
    world.power_off(&mut guest);
}

// A host's files at start: templates, cloud-init's seed, credentials in guests without systemd.

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
        let ours = templates(flavour, &Spec::default(), World::shell);
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
    assert_eq!(fs::read_to_string(seed).unwrap(), "instance-id: a\n");
    let directory = world.scratch.0.clone();
    drop(world.vm);
    let mut vm = Vm::boot(&directory, &spec, &world.host.share, world::port("lxd"));
    let mut guest = vm.guest();
    guest.ok(start);
    let _took = world.host.connected(MOTE_BOOT);
    assert!(!guest.ok("cat /run/agent.log").contains("rebooting"));
    guest.send("poweroff");
    vm.ended(MOTE_BOOT);
}

#[test]
fn a_guest_without_systemd_has_keys_and_name_from_its_host() {
    let true = vm::machine().smbios else { return skipped("SMBIOS") };
    let values = [
        "io.systemd.credential:system.hostname=web1",
        // ssh-ed25519 AAAA a@b
        "io.systemd.credential.binary:ssh.authorized_keys.root=c3NoLWVkMjU1MTkgQUFBQSBhQGIK",
        "io.systemd.credential:mote-agent.yml=features: {exec: false}",
    ];
    let extra =
        values.iter().flat_map(|value| ["-smbios".into(), format!("type=11,value={value}")]);
    let (world, mut guest) =
        World::with_shell("incus", &Spec { extra: extra.collect(), ..Spec::default() }, &[]);
    assert_eq!(guest.ok("cat /proc/sys/kernel/hostname"), "web1\n");
    assert_eq!(guest.ok("cat /root/.ssh/authorized_keys").trim_end(), "ssh-ed25519 AAAA a@b");
    assert_eq!(guest.ok("stat -c %a:%u /root/.ssh /root/.ssh/authorized_keys"), "700:0\n600:0\n");
    // The host cannot set the policy.
    assert_eq!(world.host.exec(&["/bin/echo", "a"]).as_deref(), Ok("a\n"));
    world.power_off(&mut guest);
}
