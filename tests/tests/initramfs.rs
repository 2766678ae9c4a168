//! Agents that an initramfs starts, checked by the host before, during and after switch_root: the
//! root's own agent takes over, or the first one continues if the root has none.

use mote_tests::prelude::*;
use mote_tests::proc::PID;

/// Limit for a boot with software emulation on a busy machine.
const BOOT: Duration = Duration::from_secs(400);

fn until_runs(world: &World, script: &str) {
    wait(script, BOOT, || world.host.sh(script).ok());
}

fn push(world: &World, to: &str) {
    let file = world.scratch.0.join("file");
    put(&file, "pushed");
    world.host.ok(&["file", "push", plain(&file), &format!("{NAME}{to}")]);
}

/// Checks that the host saw no STOPPED between Ready and the first call of the next agent, and then
/// that the VM stops. An agent that the host does not call for 15 s, as on a busy machine, sends
/// STOPPED and STARTED once (decisions §1).
fn ends_only_once(world: &mut World, off: &str) {
    let log = world.host.log();
    let (_, since) = log.split_once("PATCH /1.0 200").expect("Ready was reported");
    let (before, _) = since.split_once("GET /1.0 200").expect("a call of the next agent");
    assert!(!before.contains("STOPPED"), "{log}");
    let _cut = world.host.sh(off);
    world.vm.ended(BOOT);
    assert!(world.host.log().contains("STOPPED"));
}

fn append(tree: &Path, initrd: &Path) {
    let script =
        "cd \"$1\" && find . -mindepth 1 | cpio --quiet -R 0:0 -H newc -o | gzip -n -1 >>\"$2\"";
    let mut command = Command::new("bash");
    command.args(["-o", "pipefail", "-c", script, "-"]).arg(tree).arg(initrd);
    assert!(command.status().expect("bash").success(), "cpio");
}

// A home-made busybox initramfs and its `switch_root`: the example of docs/how-to/initramfs.md.

/// `/sbin/init` of the root on the disk, which has the directories that the page requires.
const NEXT: &str = include_str!("initramfs/next");

/// Creates disk `$2` from the root's tree `$1`, and adds its modules to the initramfs' tree `$3`.
const DISK: &str = include_str!("initramfs/disk");

fn init() -> String {
    let page =
        fs::read_to_string(source::root().join("docs/how-to/initramfs.md")).expect("the page");
    let (_, example) =
        page.split_once("\n## Continue in a root file system\n").expect("the example");
    let (_, text) = example.split_once("```sh\n").expect("its text");
    text.split_once("```").expect("its end").0.to_owned()
}

fn started_in(scratch: Scratch, spec: &Spec) -> World {
    World::with(scratch, spec, "lxd", &["--config", "user.foo=bar"], |_| {})
}

/// Boots the example's initramfs, without the root's disk yet.
fn boot(has_agent: bool) -> World {
    let scratch = Scratch::new();
    let base = tool("MOTE_IMAGE", "target/image");
    let image = scratch.0.join("image");
    fs::create_dir(&image).expect("a directory");
    for file in ["vmlinuz", "initrd"] {
        fs::copy(base.join(file), image.join(file)).expect("the image");
    }
    let [tree, root, disk] = ["tree", "root", "disk"].map(|name| scratch.0.join(name));
    for (top, name) in [(&tree, "old"), (&root, "new")] {
        put(top.join("etc/hostname"), name);
        fs::create_dir_all(top.join("sbin")).expect("a directory");
    }
    program(tree.join("init"), init());
    program(root.join("sbin/init"), NEXT);
    fs::copy(agent(), tree.join("sbin/mote-agent")).expect("the agent");
    if has_agent {
        fs::copy(agent(), root.join("sbin/mote-agent")).expect("the agent");
    }
    fs::create_dir_all(tree.join("lib/modules").join(kernel())).expect("a directory");
    let mut make = Command::new("bash");
    make.args(["-euc", DISK, "-"]).args([&root, &disk, &tree]);
    assert!(make.current_dir(source::root()).status().expect("bash").success());
    append(&tree, &image.join("initrd"));
    let drive = format!("file={},if=none,id=root,format=raw", disk.display());
    let extra = vec!["-drive".into(), drive];
    let world = started_in(scratch, &Spec { image, memory: 256, extra, ..Spec::default() });
    until_runs(&world, "true");
    assert_eq!(name(&world), "old");
    world.sh("mote-agent ready");
    world
}

fn kernel() -> String {
    source::printed(Command::new("image/initramfs").arg("--kernel")).trim().to_owned()
}

/// Waits for a CONNECTED after this line, and returns the agents' log.
fn connected_after(world: &World, line: &str) -> String {
    let look = || {
        // The agent delays the re-exec while calls of the host keep arriving.
        thread::sleep(Duration::from_secs(2));
        let log = world.host.sh("cat /run/mote-agent-initramfs.log").ok()?;
        let is = log.split_once(line).is_some_and(|(_, after)| after.contains(": CONNECTED "));
        is.then_some(log)
    };
    wait(line, BOOT, look).0
}

fn name(world: &World) -> String {
    world.sh("cat /etc/hostname").trim().to_owned()
}

fn free(world: &World) -> u64 {
    proc::kilobytes(&world.sh("cat /proc/meminfo"), "MemFree:").expect("a number")
}

#[test]
fn the_first_agent_continues_in_a_root_without_one() {
    let mut world = boot(false);
    world.sh("head -c 40000000 /dev/urandom >/ballast");
    let before = free(&world);
    world.vm.attach(ROOT);
    let log = connected_after(&world, "restarting in place");
    assert!(log.contains("left the initramfs; continuing in the new root"), "{log}");
    assert_eq!(name(&world), "new");
    // Files, mounts, the socket and the reports are those of the new root.
    push(&world, "/tmp/pushed");
    assert_eq!(
        world.sh("cat /tmp/pushed; ls /"),
        "pushedbin\ndev\netc\nlost+found\nproc\nroot\nrun\nsbin\nsys\ntmp\n"
    );
    assert!(world.sh("ls -l /dev/lxd/sock").starts_with('s'));
    // The agent's program no longer exists in the file system, but continues to run.
    let pid = world.sh(PID);
    let pid = pid.trim();
    let look = format!("/proc/{pid}");
    assert_eq!(world.sh(&format!("{look}/exe get user.foo")), "bar\n");
    assert!(world.sh(&format!("{look}/exe status")).contains("Ready"));
    let open = world.sh(&format!("ls -l {look}/fd {look}/cwd {look}/root"));
    assert!(open.contains("root -> /\n") && !open.contains("(unreachable)"), "{open}");
    assert_eq!(world.sh(&format!("tr '\\0' ' ' <{look}/cmdline")), "mote-agent --left-initramfs ");
    // The files of the initramfs are deleted, which frees memory.
    let after = free(&world);
    assert!(after > before + 20_000, "{before} {after}");
    ends_only_once(&mut world, "touch /run/off");
}

#[test]
fn the_roots_own_agent_takes_over() {
    let mut world = boot(true);
    world.vm.attach(ROOT);
    let outage = Outage::watch(Client::new(&world.host));
    let log = connected_after(&world, "taking over from the initramfs' agent");
    assert!(log.contains("another agent takes over"), "{log}");
    assert_eq!(outage.failures(), [""; 0]);
    assert_eq!(name(&world), "new");
    assert!(world.sh("mote-agent status").contains("Ready"));
    assert_eq!(world.sh("mote-agent get user.foo"), "bar\n");
    let left = || world.host.sh("ps | grep -c '[i]nitramfs'").unwrap_or_default();
    until("the first's end", Duration::from_secs(60), || left() != "1\n");
    ends_only_once(&mut world, "touch /run/off");
}

// Debian 12 with initramfs-tools and with dracut, made by `image/debian`. The root's disk
// appears while the initramfs waits for it.

const LOG: &str = "/run/mote-agent-initramfs.log";
/// The root's disk, which is plugged in late.
const ROOT: &str = "virtio-blk-pci,drive=root,id=rootdisk";

fn image(tool: &str) -> PathBuf {
    source::printed(Command::new("image/debian").arg(tool)).trim().into()
}

fn booted(image: &Path, disk: &str) -> World {
    let drive =
        format!("file={},if=none,id=root,format=raw,snapshot=on", image.join(disk).display());
    let spec = Spec {
        image: image.to_owned(),
        memory: 512,
        // Both would give up in seconds. initramfs-tools sleeps for `rootdelay`; `come` wakes it.
        words: "root=LABEL=mote-root rw rootdelay=1000 rd.retry=1000".into(),
        extra: vec!["-drive".into(), drive],
        ..Spec::default()
    };
    started_in(Scratch::new(), &spec)
}

/// Checks that commands run in an initramfs that cannot find its root.
fn waits(world: &World) {
    assert_eq!(world.host.sh("[ -e /usr/bin/dpkg ] || echo none").as_deref(), Ok("none\n"));
    assert_eq!(world.sh("ls /dev/disk/by-label | grep mote-root || echo missing"), "missing\n");
    world.sh("mote-agent ready");
    let line = world.sh(&format!("tr '\\0' ' ' </proc/$({PID})/cmdline"));
    assert!(line.starts_with("@/usr/sbin/mote-agent --initramfs"), "{line}");
}

fn debian_comes(world: &World) {
    world.vm.attach(ROOT);
    world.sh("kill $(pidof sleep) || true");
}

fn taken_over(tool: &'static str) {
    let image = image(tool);
    let mut world = booted(&image, "disk");
    world.host.connected(BOOT);
    let power_on = world.begun.elapsed();
    let text = world.sh(&format!("cat /proc/$({PID})/stat; cat /proc/uptime"));
    let (stat, uptime) = text.split_once('\n').expect("two lines");
    let uptime = uptime.split(' ').next().and_then(|word| word.parse().ok());
    let agent_start = Duration::from_secs_f64(uptime.expect("an uptime")) - proc::started(stat);
    waits(&world);
    let outage = Outage::watch(Client::new(&world.host));
    debian_comes(&world);
    until_runs(
        &world,
        "[ -e /usr/bin/dpkg ] && systemctl is-active mote-agent && mote-agent status | grep -q CONNECTED",
    );
    let failures = outage.failures();
    // A handshake may exceed the agent's limit of 3 s while systemd starts everything on one
    // emulated CPU.
    assert!(!failures.iter().any(|why| why.contains("connection refused")), "{failures:?}");
    assert!(world.sh("mote-agent status").contains("Ready"));
    assert!(world.sh(&format!("cat {LOG}")).contains("another agent takes over"));
    // The pattern must not match the shell's own arguments.
    until_runs(&world, "! grep -lsa -- '-[-]initramfs' /proc/[0-9]*/cmdline");
    ends_only_once(&mut world, "poweroff");
    pages::way(tool, "Debian 12, kernel 6.1, QEMU (TCG)", [agent_start, power_on]);
}

fn goes_on(tool: &'static str) {
    let image = image(tool);
    let mut world = booted(&image, "bare");
    world.host.connected(BOOT);
    waits(&world);
    debian_comes(&world);
    // The log contains this command, too, which the pattern must not match.
    until_runs(
        &world,
        &format!(
            "[ -e /usr/bin/dpkg ] && grep -c '[r]estarting in place' {LOG} && systemctl is-system-running --wait"
        ),
    );
    assert_eq!(
        world.sh("cat /etc/hostname; [ ! -e /usr/sbin/mote-agent ] || echo agent"),
        format!("bookworm-{tool}\n")
    );
    // The agent runs outside of the units that systemd stops before the shutdown.
    let pid = world.sh(PID);
    let pid = pid.trim();
    assert_eq!(world.sh(&format!("cat /proc/{pid}/cgroup")), "0::/init.scope\n");
    push(&world, "/srv/pushed");
    assert_eq!(world.sh("cat /srv/pushed; stat -f -c %T /srv/pushed"), "pushedext2/ext3\n");
    assert_eq!(world.sh(&format!("/proc/{pid}/exe get user.foo")), "bar\n");
    assert!(world.sh(&format!("/proc/{pid}/exe status")).contains("Ready"));
    assert!(world.host.run(&["state", NAME]).contains("processes"));
    ends_only_once(&mut world, "poweroff");
}

mote_tests::tests! {
    initramfs_tools_and_a_root_with_an_agent: taken_over("initramfs-tools"),
    initramfs_tools_and_a_root_without: goes_on("initramfs-tools"),
    dracut_and_a_root_with_an_agent: taken_over("dracut"),
    dracut_and_a_root_without: goes_on("dracut"),
}
