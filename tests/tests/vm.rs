//! The booted VM: everything that touches serial port, vsock, mounts and processes.

use std::time::{Duration, Instant};

use mote_tests::Scratch;
use mote_tests::guest::Guest;
use mote_tests::host::{Host, NAME};
use mote_tests::proc::kilobytes;
use mote_tests::vm::{Share, Spec, Vm, qmp, serial, vsock};
use mote_tests::{tool, wait};

/// From power-on to CONNECTED, under software emulation on a busy machine.
const BOOT: Duration = Duration::from_secs(60);
/// The host is back, and so must be the agent.
const BACK: Duration = Duration::from_secs(2);

/// A host and a VM that was told to boot.
struct World {
    vm: Vm,
    host: Host,
    _scratch: Scratch,
}

impl World {
    fn boot(flavour: &str, spec: &Spec, extra: &[&str]) -> Self {
        Self::prepare(flavour, spec, extra, |_| {})
    }

    /// The same, with something done to the host before the VM is there.
    fn prepare(flavour: &str, spec: &Spec, extra: &[&str], prepare: impl FnOnce(&Host)) -> Self {
        let scratch = Scratch::new();
        let directory = scratch.0.as_path();
        let (vs, monitor, port) = (vsock(directory), qmp(directory), serial(directory));
        let text = |path: &std::path::Path| path.display().to_string();
        let (vs, monitor, port) = (text(&vs), text(&monitor), text(&port));
        let mut args = vec!["--flavour", flavour, "--vsock-uds", &vs, "--config", "user.foo=bar"];
        args.extend(if spec.socket { ["--serial", &port] } else { ["--qmp", &monitor] });
        args.extend(extra);
        let mut host = Host::new(directory, &args);
        host.start();
        prepare(&host);
        let vm = Vm::boot(directory, spec, &host.share);
        Self { vm, host, _scratch: scratch }
    }

    /// Waits for CONNECTED, then for the guest's shell.
    fn connected(&mut self) -> Guest {
        let begun = Instant::now();
        while !self.host.is_connected() {
            if begun.elapsed() > BOOT {
                // What it hangs on, before it is gone.
                let mut guest = self.vm.guest();
                let proc = "p=/proc/$(cat /run/agent.pid); cat /run/agent.log $p/status $p/wchan";
                panic!("no CONNECTED: {}\n{}", guest.sh(proc).1, self.host.log());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.vm.guest()
    }

    /// Kills the daemon, keeps it down for a while, and demands CONNECTED soon after.
    fn restart(&mut self, why: &str) -> Duration {
        self.host.kill();
        std::thread::sleep(BACK);
        self.host.start();
        let took = self.host.connected(BOOT);
        assert!(took < BACK, "{why}: {took:?}\n{}\n{}", self.host.log(), self.vm.console());
        took
    }

    fn power_off(mut self, guest: &mut Guest) {
        guest.send("poweroff");
        wait("STOPPED", Duration::from_secs(20), || {
            (self.host.state()["state"] == "STOPPED").then_some(())
        });
        self.vm.ended(Duration::from_secs(20));
    }
}

#[test]
fn each_port_name_is_found_and_tells_the_flavour() {
    for (port, flavour, socket) in [
        ("com.canonical.lxd", "lxd", "/dev/lxd/sock"),
        ("org.linuxcontainers.lxd", "lxd-5.0", "/dev/lxd/sock"),
        ("org.linuxcontainers.incus", "incus", "/dev/incus/sock"),
    ] {
        let mut world = World::boot(flavour, &Spec { port, ..Spec::default() }, &[]);
        let mut guest = world.connected();
        assert_eq!(guest.ok("mote-agent get user.foo"), "bar\n");
        let status = guest.ok("mote-agent status");
        assert!(status.contains(&format!("flavour: {flavour}\n")), "{status}");
        assert!(status.contains("state: CONNECTED\n"), "{status}");
        guest.ok(&format!("test -S {socket}"));
        assert_eq!(guest.ok(&format!("stat -c %a {socket}")), "600\n");
        // The config disk was only needed to read it.
        assert_eq!(guest.sh("grep -c iso9660 /proc/mounts").1, "0\n");
        world.power_off(&mut guest);
    }
}

#[test]
fn a_host_killed_in_any_state_has_the_agent_back_in_two_seconds() {
    // Before the PUT: the host has read STARTED and does not call, and no file tells where it is.
    let mut world = World::prepare("lxd", &Spec::default(), &[], |host| {
        host.ok(&["fault", NAME, "deny-put"]);
        std::fs::remove_file(host.share.join("agent.conf")).unwrap();
    });
    wait("STARTED to be read", BOOT, || (world.host.state()["started"] == true).then_some(()));
    assert_eq!(world.host.state()["last_put"], serde_json::Value::Null);
    assert!(!world.vm.console().contains("CONNECTED"), "{}", world.vm.console());
    world.restart("before PUT");
    let mut guest = world.connected();
    guest.ok("mote-agent ready");
    // While CONNECTED; Ready comes back too.
    let took = world.restart("connected");
    println!("killed while CONNECTED: back after {took:?}");
    wait("Ready", BACK, || (world.host.state()["status"] == "Ready").then_some(()));
    // During verification: the host has called, is slow to be called back, and dies meanwhile.
    world.host.ok(&["fault", NAME, "slow", "5000"]);
    let mut put = world.host.launch(&["set", NAME, "security.devlxd=false"]);
    let mut state = || guest.sh("mote-agent status | grep state:").1;
    wait("the verification", BACK, || (state() == "state: CONNECT\n").then_some(()));
    world.restart("during verification");
    put.kill();
    // During a call: it fails at once, and the next one works.
    world.host.ok(&["fault", NAME, "slow", "30000"]);
    guest.send("mote-agent get user.foo");
    std::thread::sleep(Duration::from_millis(700));
    world.restart("during a call");
    // It did not wait for the 30 s.
    let (_, output) = guest.reply(Duration::from_secs(5));
    assert!(output.contains("Failed connecting to devLXD"), "{output}");
    // During an event stream: it lives on, and carries events of the new daemon.
    guest.ok("(mote-agent events >/tmp/events 2>&1 &) ; sleep 0.3");
    world.restart("during an event stream");
    world.host.ok(&["set", NAME, "user.foo=new"]);
    wait("the event", Duration::from_secs(5), || {
        guest.sh("cat /tmp/events").1.contains("\"value\":\"new\"").then_some(())
    });
    assert_eq!(guest.ok("mote-agent get user.foo"), "new\n");
    world.power_off(&mut guest);
}

#[test]
fn a_host_on_a_socket_says_connect_and_an_echo_does_not_matter() {
    for shared in [false, true] {
        let extra: &[&str] = if shared { &["--shared-memory"] } else { &[] };
        let mut world = World::boot("lxd", &Spec { socket: true, ..Spec::default() }, extra);
        let mut guest = world.connected();
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

#[test]
fn the_config_share_may_be_virtiofs() {
    let virtiofsd = tool("MOTE_VIRTIOFSD", "/usr/lib/qemu/virtiofsd");
    assert!(virtiofsd.exists(), "{} is needed", virtiofsd.display());
    let spec = Spec { share: Share::Virtiofs, ..Spec::default() };
    let mut world = World::boot("lxd", &spec, &[]);
    let mut guest = world.connected();
    wait("the log", BACK, || world.vm.console().contains("files from virtiofs").then_some(()));
    assert_eq!(guest.sh("grep -c virtiofs /proc/mounts").1, "0\n");
    assert_eq!(guest.ok("mote-agent get user.foo"), "bar\n");
    world.power_off(&mut guest);
}

/// A directory on the host with one file in it.
fn directory(host: &Host, name: &str) -> std::path::PathBuf {
    let path = host.directory.join(name);
    std::fs::create_dir_all(&path).expect("a directory");
    std::fs::write(path.join("file"), format!("in {name}\n")).expect("a file");
    path
}

#[test]
fn what_the_host_prepared_is_done_before_anybody_is_told_and_shares_come_and_go() {
    let mut spec =
        Spec { share: Share::Virtiofs, nic: Some("00:16:3e:aa:bb:cc"), ..Spec::default() };
    let shares = Scratch::new();
    for tag in ["lxd_a", "lxd_old"] {
        let source = shares.0.join(tag);
        std::fs::create_dir_all(&source).unwrap();
        std::fs::write(source.join("file"), format!("in {tag}\n")).unwrap();
        spec.shares.push((tag, source));
    }
    let mut world = World::prepare("lxd", &spec, &[], |host| {
        let put = |path: &str, text: &str| {
            let path = host.share.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
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
    let mut guest = world.connected();
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
    assert!(
        log.contains("mount: exit code 1: lxd_none on /mnt/none: virtiofs: Invalid argument"),
        "{log}"
    );
    assert!(log.find("mount: lxd_a is on").unwrap() < log.find("info: STARTED").unwrap(), "{log}");
    a_share_is_plugged_in(&mut world, &mut guest);
    // Not ours to unmount, and a path that leads out.
    for path in ["path=/tmp", "path=/mnt/../tmp"] {
        world.host.ok(&["device-add", NAME, "bad", "type=disk", path, "source=/srv"]);
        world.host.ok(&["device-remove", NAME, "bad"]);
    }
    assert_eq!(guest.sh("grep -c ' /tmp ' /proc/mounts").1, "1\n");
    world.power_off(&mut guest);
}

fn a_share_is_plugged_in(world: &mut World, guest: &mut Guest) {
    // The event before its device, as it may well be (field notes 30).
    let source = directory(&world.host, "plugged");
    std::thread::scope(|scope| {
        let add = ["device-add", NAME, "plug", "type=disk", "path=/mnt/plug", "source=/srv"];
        let host = &world.host;
        let told = scope.spawn(move || host.try_run(&add));
        std::thread::sleep(Duration::from_secs(1));
        world.vm.plug("lxd_plug", &source);
        told.join().expect("a thread").expect("an answer");
    });
    wait("the share", BOOT, || (guest.sh("cat /mnt/plug/file").1 == "in plugged\n").then_some(()));
    world.host.ok(&["device-remove", NAME, "plug"]);
    assert_eq!(guest.sh("grep -c /mnt/plug /proc/mounts").1, "0\n");
    assert_eq!(guest.ok("ls -d /mnt/plug"), "/mnt/plug\n");
}

#[test]
fn on_incus_a_share_is_mounted_beside_the_answer_and_unmounted_by_its_tag() {
    let shares = Scratch::new();
    std::fs::write(shares.0.join("file"), "in plug\n").unwrap();
    let port = "org.linuxcontainers.incus";
    let spec = Spec { port, shares: vec![("incus_plug", shares.0.clone())], ..Spec::default() };
    let mut world = World::boot("incus", &spec, &[]);
    let mut guest = world.connected();
    // A symbolic link of the guest's own is the guest's business.
    guest.ok("mkdir /mnt /srv && ln -s /srv /mnt/link");
    world.host.ok(&["device-add", NAME, "plug", "type=disk", "path=/mnt/link/x", "source=/srv"]);
    wait("the share", BOOT, || (guest.sh("cat /srv/x/file").1 == "in plug\n").then_some(()));
    world.host.ok(&["device-remove", NAME, "plug"]);
    wait("no share", BOOT, || {
        (guest.sh("grep -c incus_plug /proc/mounts").1 == "0\n").then_some(())
    });
    world.power_off(&mut guest);
}

#[test]
fn it_is_small_and_stays_small_and_boots_in_little_memory() {
    let spec = Spec { memory: 96, ..Spec::default() };
    let mut world = World::boot("lxd", &spec, &[]);
    let mut guest = world.connected();
    let pss = |guest: &mut Guest| {
        let text = guest.ok("cat /proc/$(cat /run/agent.pid)/smaps_rollup");
        kilobytes(&text, "Pss:").unwrap()
    };
    std::thread::sleep(Duration::from_secs(2));
    let idle = pss(&mut guest);
    let calls = "i=0; while [ $i -lt 100 ]; do mote-agent get user.foo >/dev/null || exit 1; i=$((i+1)); done";
    guest.ok(calls);
    std::thread::sleep(Duration::from_secs(1));
    let after = pss(&mut guest);
    let threads = guest.ok("ls /proc/$(cat /run/agent.pid)/task | wc -l");
    println!("PSS idle {idle} kB, after 100 calls {after} kB, threads {}", threads.trim());
    assert!(idle < 1500, "{idle} kB");
    assert!(after < idle + 200, "{idle} then {after} kB");
    let check = guest.sh("mote-agent --check");
    assert_eq!(check.0, 0, "{}", check.1);
    assert!(check.1.contains("vsock: context id 3"), "{}", check.1);
    world.power_off(&mut guest);
}

#[test]
fn without_vsock_incus_learns_the_state_through_the_port() {
    let port = "org.linuxcontainers.incus";
    let spec = Spec { port, ring: 16_384, vsock: false, ..Spec::default() };
    let mut world = World::boot("incus", &spec, &[]);
    let state = || world.host.state()["serial_state"].clone();
    let (state, _) = wait("the state", BOOT, || Some(state()).filter(|state| !state.is_null()));
    assert!(state["processes"].as_u64() > Some(1), "{state}");
    assert!(state["memory"]["total"].as_u64() > Some(64 << 20), "{state}");
    let mut guest = world.vm.guest();
    assert!(guest.ok("cat /run/agent.log").contains("by the status port alone"));
    // Nobody could answer there.
    guest.ok("test ! -e /dev/incus/sock");
    world.power_off(&mut guest);
}

/// Somebody else's agents against our host, so that it is not only right for our own.
#[test]
fn the_real_agents_connect_to_the_host_and_serve_devlxd() {
    let Some(image) = std::env::var_os("MOTE_IMAGE_GO") else {
        panic!("MOTE_IMAGE_GO: an image with the Go agents is needed; scripts/test makes it");
    };
    for (agent, flavour, port) in [
        // Debian's 5.0.2 writes to the old port, and blocks for ever on a dummy.
        ("lxd-agent", "lxd-5.0", "org.linuxcontainers.lxd"),
        ("incus-agent", "incus", "org.linuxcontainers.incus"),
    ] {
        let words = format!("mote.start={agent}");
        let spec =
            Spec { image: image.clone().into(), port, words, memory: 256, ..Spec::default() };
        let mut world = World::boot(flavour, &spec, &[]);
        let mut guest = world.connected();
        assert_eq!(guest.ok("mote-agent get user.foo"), "bar\n", "{agent}");
        let metadata = guest.ok("mote-agent metadata");
        assert!(metadata.starts_with("#cloud-config\ninstance-id: vm1"), "{agent}: {metadata}");
        let pss = guest.ok("grep ^Pss: /proc/$(cat /run/agent.pid)/smaps_rollup");
        println!("{agent}: {}", pss.trim());
        world.power_off(&mut guest);
    }
}

/// What comes of templates: modes, owners, texts, hostname, in the words of the guest's own tools.
fn templates(flavour: &str, spec: &Spec) -> String {
    let mut world = World::prepare(flavour, spec, &[], |host| {
        let put = |path: &str, text: &str| {
            let path = host.share.join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            std::fs::write(path, text).expect("a file");
        };
        // `uptime` is there before any agent.
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
    let mut guest = world.connected();
    let told = guest.ok(
        "cd /run/mote-test; for f in uptime a a/b a/b/new plain /etc /etc/hostname /init; do stat -c \
         '%n %a %u %g' $f; done; cat uptime a/b/new plain /etc/hostname /proc/sys/kernel/hostname; \
         ls notdue 2>/dev/null; head -c 9 /init",
    );
    world.power_off(&mut guest);
    told
}

#[test]
fn templates_come_out_as_with_the_real_agents() {
    let image = std::env::var_os("MOTE_IMAGE_GO").expect("MOTE_IMAGE_GO, which scripts/test makes");
    for (agent, flavour, port) in [
        ("lxd-agent", "lxd-5.0", "org.linuxcontainers.lxd"),
        ("incus-agent", "incus", "org.linuxcontainers.incus"),
    ] {
        let words = format!("mote.start={agent}");
        let spec =
            Spec { image: image.clone().into(), port, words, memory: 256, ..Spec::default() };
        let theirs = templates(flavour, &spec);
        let ours = templates(flavour, &Spec { port, ..Spec::default() });
        assert_eq!(ours, theirs, "{agent}");
        println!("{agent}:\n{ours}");
    }
}

/// cloud-init's seed on a disk (here a share), and a system whose own command is missing: the kernel
/// itself reboots. QEMU ends then, and the next boot finds the seed as it was left.
#[test]
fn a_new_seed_reboots_once_and_before_anybody_is_told() {
    let disk = Scratch::new();
    let words = "mote.agent=no".into();
    let spec = Spec { shares: vec![("var", disk.0.clone())], words, ..Spec::default() };
    let mut world = World::prepare("lxd", &spec, &[], |host| {
        let seed = "templates: {/var/lib/cloud/seed/nocloud-net/meta-data: {template: s}}";
        std::fs::create_dir_all(host.share.join("files")).unwrap();
        std::fs::write(host.share.join("files/metadata.yaml"), seed).unwrap();
        std::fs::write(host.share.join("files/s.out"), "instance-id: a\n").unwrap();
    });
    let start = "modprobe virtiofs; mkdir -p /var /etc/cloud; mount -t virtiofs var /var; rm -f \
                 /bin/reboot; mote-agent 2>/run/agent.log & echo $! >/run/agent.pid";
    let mut guest = world.vm.guest();
    guest.send(start);
    world.vm.ended(BOOT);
    assert!(!world.host.log().contains("agent STARTED"), "{}", world.host.log());
    let seed = disk.0.join("lib/cloud/seed/nocloud-net/meta-data");
    assert_eq!(std::fs::read_to_string(seed).unwrap(), "instance-id: a\n");
    let directory = world._scratch.0.clone();
    drop(world.vm);
    let mut vm = Vm::boot(&directory, &spec, &world.host.share);
    let mut guest = vm.guest();
    guest.ok(start);
    let _took = world.host.connected(BOOT);
    assert!(!guest.ok("cat /run/agent.log").contains("rebooting"));
    guest.send("poweroff");
    vm.ended(BOOT);
}
