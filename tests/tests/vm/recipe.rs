//! The QEMU command of `mote-host init`, pasted into a shell: the VM's agent becomes CONNECTED.

use mote_tests::prelude::*;
use mote_tests::qmp;
use rustix::process::{Pid, kill_process_group};

/// A shell and its children, killed when dropped.
struct Group(Process);

impl Group {
    fn start(mut bash: Command, output: &Path) -> Self {
        let output = File::create(output).expect("a file");
        bash.stdin(Stdio::piped()).stdout(output.try_clone().expect("a copy")).stderr(output);
        Self(Process::start(bash.process_group(0)))
    }

    /// Runs a shell until it ends successfully. Returns the group and its output.
    fn run(bash: Command, output: &Path) -> (Self, String) {
        let mut group = Self::start(bash, output);
        let code = group.0.ends(6 * MOTE_BOOT);
        let said = fs::read_to_string(output).unwrap_or_default();
        assert_eq!(code, Some(0), "{said}");
        (group, said)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _gone = kill_process_group(Pid::from_child(&self.0.0), Signal::KILL);
    }
}

/// Returns a PATH with `mote-host` and `vhost-device-vsock`.
fn path_with_tools() -> String {
    let tools =
        [("MOTE_HOST", "target/debug/mote-host"), ("MOTE_VSOCK", "target/vhost-device-vsock")];
    let tools = tools.map(|(name, usual)| tool(name, usual));
    let directories = tools.iter().filter_map(|tool| tool.parent());
    let directories: Vec<String> = directories.map(|path| path.display().to_string()).collect();
    format!("{}:{}", directories.join(":"), std::env::var("PATH").expect("a path"))
}

fn bash(directory: &Path, text: &str) -> Command {
    let mut bash = Command::new("bash");
    bash.args(["-Eec", text]).current_dir(directory).env("PATH", path_with_tools());
    bash
}

fn link_image(directory: &Path) {
    for name in ["vmlinuz", "initrd"] {
        symlink(Spec::default().image.join(name), directory.join(name)).expect("a link");
    }
}

/// Runs the text in a directory that contains the kernel and initrd it expects.
fn paste(directory: &Path, text: &str) -> Group {
    link_image(directory);
    Group::start(bash(directory, text), &directory.join("console"))
}

#[test]
fn a_vm_booted_with_the_printed_command_connects_under_each_server() {
    for (flavour, seen) in [("lxd", "(lxd)"), ("lxd-5.0", "(lxd-5.0)"), ("incus", "(incus)")] {
        let scratch = Scratch::new();
        let directory = scratch.0.as_path();
        let mut host = Host::new(directory, &["--flavour", flavour]);
        host.start();
        let text = host.run(&["qemu", NAME, "--memory", "128"]);
        // By default, the test image's shell is on a second serial port.
        let text = text.replace("panic=-1'", "panic=-1 mote.shell=console'");
        let vm = paste(directory, &text);
        let limit = patient(MOTE_BOOT).as_secs().to_string();
        let console = || fs::read_to_string(directory.join("console")).unwrap_or_default();
        let waited = host.try_run(&["wait", NAME, "--for", "CONNECTED", "--timeout", &limit]);
        assert!(waited.is_ok(), "{waited:?}\n{}\n{text}", console());
        // `mote-host` prints the log once a second.
        let found = format!("vport0p1 {seen}");
        until("the port's line", MOTE_BOOT, || console().contains(&found));
        is_the_servers(&host, flavour);
        if flavour == "lxd-5.0" {
            let error = host.try_run(&["wait", NAME, "--for", "Ready", "--timeout", "0"]);
            assert!(error.unwrap_err().contains("before 5.20 has no Ready"));
        } else {
            host.ok(&["exec", "-n", NAME, "--", "mote-agent", "ready"]);
            host.ok(&["wait", NAME, "--for", "Ready", "--timeout", "60"]);
        }
        the_power_button_is_pressed(&host);
        // QEMU may close the connection before it answers.
        if let Ok(answer) = order(&host, "quit") {
            assert_eq!(answer, json!({"return": {}}));
        }
        host.stopped(Duration::from_secs(10));
        // The vsock device ends with QEMU, although the shell still runs.
        until("its vsock's end", Duration::from_secs(10), || carriers(&host).is_empty());
        assert_eq!(host.state()["why"]["cause"], "qemu-ended", "{}", host.state());
        drop(vm);
    }
}

/// Checks that SMBIOS, disks and devices are those of the server.
fn is_the_servers(host: &Host, flavour: &str) {
    let read = |path: &str| host.exec(&["cat", path]).expect("a file");
    let board = if flavour == "incus" { "Incus\n" } else { "LXD\n" };
    assert_eq!(read("/sys/class/dmi/id/board_name"), board);
    let uuid = host.run(&["get", NAME, "volatile.uuid"]);
    assert_eq!(read("/sys/class/dmi/id/product_uuid").to_lowercase(), uuid);
    let devices =
        host.run(&["exec", "-n", NAME, "--", "sh", "-c", "cat /sys/bus/virtio/devices/*/device"]);
    // Device IDs of virtio: block, serial, random numbers, balloon, vsock.
    for number in ["0x0002", "0x0003", "0x0004", "0x0005", "0x0013"] {
        assert!(devices.lines().any(|line| line == number), "{number} in {devices}");
    }
}

/// Sends a command to the user's own QEMU monitor. Returns its answer.
fn order(host: &Host, order: &str) -> io::Result<Value> {
    let path = host.directory.join(format!("instances/{NAME}/qmp.yours"));
    let monitor = UnixStream::connect(path).expect("the other monitor");
    monitor.set_read_timeout(Some(MOTE_BOOT)).expect("a limit");
    qmp(&monitor, order, &json!({}))
}

/// Uses the user's monitor, as a tester of an image would. mote-host has a monitor of its own.
fn the_power_button_is_pressed(host: &Host) {
    assert_eq!(order(host, "system_powerdown").expect("an answer"), json!({"return": {}}));
    assert!(host.is_connected(), "{}", host.state());
    // mote-host presses the same button, which this image ignores.
    let stopped = host.try_run(&["stop", NAME, "--timeout", "0.5"]);
    contains(stopped.expect_err("it is off"), &["handle the power button"]);
}

fn carriers(host: &Host) -> Vec<u32> {
    let way = format!("uds-path={}/", host.directory.display());
    let is_one = |line: &str| line.starts_with("vhost-device-vsock") && line.contains(&way);
    proc::processes().filter(|(_, line)| is_one(line)).map(|(pid, _)| pid).collect()
}

#[test]
fn the_vsock_device_starts_once_and_ends_with_its_instance() {
    let scratch = Scratch::new();
    let directory = scratch.0.as_path();
    let mut host = Host::new(directory, &[]);
    host.start();
    let recipe = host.run(&["qemu", NAME]);
    let (before, _) = recipe.split_once("mote=(").expect("what comes before QEMU");
    let mut groups = Vec::new();
    let mut first = Vec::new();
    for round in 0..3 {
        let (group, said) = Group::run(bash(directory, before), &directory.join("output"));
        groups.push(group);
        let now = carriers(&host);
        assert_eq!(now.len(), 1, "{now:?} in round {round}: {said}");
        if round == 0 {
            first = now;
        } else {
            assert_eq!(now, first, "another one in round {round}");
        }
    }
    host.ok(&["delete", NAME]);
    until("its end", Duration::from_secs(10), || carriers(&host).is_empty());
}

#[test]
fn qemu_accepts_every_option_of_the_recipe() {
    let scratch = Scratch::new();
    let directory = scratch.0.as_path();
    let prefix = directory.join("p").display().to_string();
    let init = ["--flavour", "incus", "--vsock-plain", &prefix, "--config", "smbios11.a=b,c=d"];
    let mut host = Host::new(directory, &init);
    host.start();
    let (disk, seed) = (directory.join("a,b.img"), directory.join("my seed"));
    File::create(&disk).and_then(|file| file.set_len(1 << 20)).expect("a disk");
    fs::create_dir(&seed).expect("a directory");
    fs::write(seed.join("user-data"), "#cloud-config\n").expect("a file");
    let (disk, seed) = (disk.display().to_string(), seed.display().to_string());
    let recipe = host.run(&["qemu", NAME, "--disk", &disk, "--seed", &seed]);
    // With -S, the VM executes no instruction.
    let recipe = recipe.replace("-serial stdio", "-serial null -S");
    let vm = paste(directory, &recipe);
    let console = || fs::read_to_string(directory.join("console")).unwrap_or_default();
    let cause = || host.state()["why"]["cause"].clone();
    until(&format!("QEMU\n{recipe}\n{}", console()), MOTE_BOOT, || cause() == "paused");
    assert!(host.state()["why"]["text"].as_str().is_some_and(|text| text.contains("prelaunch")));
    let blocks = order(&host, "query-block").expect("an answer").to_string();
    for (device, file) in [("config", "config.iso"), ("root", "a,b.img"), ("seed", "seed.iso")] {
        contains(&blocks, &[&format!("\"device\":\"{device}\""), file]);
    }
    host.ok(&["stop", "--force", NAME]);
    assert_eq!(host.state()["status"], "Stopped");
    drop(vm);
}

/// The first of the example's commands to run here: earlier ones fetch and build existing files.
const FIRST: &str = "cp \"kernel/boot/vmlinuz-$version\" vmlinuz\n";

/// Returns the commands in a page of docs/ between two headings.
fn commands(page: &str, from: &str, before: &str) -> String {
    let page = fs::read_to_string(source::root().join("docs").join(page)).expect("the page");
    let (_, part) = page.split_once(from).expect("the first heading");
    let (part, _) = part.split_once(before).expect("the next heading");
    let blocks = part.split("```sh\n").skip(1).filter_map(|block| block.split("```").next());
    blocks.collect()
}

/// Returns the unpacked kernel package that the test image also uses.
fn kernel() -> (String, String) {
    let cache = std::env::var("XDG_CACHE_HOME")
        .unwrap_or_else(|_| format!("{}/.cache", std::env::var("HOME").expect("a home")));
    let kernel = format!("{cache}/mote/kernel");
    let mut versions = fs::read_dir(format!("{kernel}/lib/modules")).expect("a kernel");
    let version = versions.next().expect("a kernel").expect("its name").file_name();
    (kernel, version.to_string_lossy().into_owned())
}

#[test]
fn the_initramfs_example_works_as_written() {
    let scratch = Scratch::new();
    let (kernel, version) = kernel();
    symlink(kernel, scratch.0.join("kernel")).expect("a link");
    let agent = tool("MOTE_AGENT", "target/small/x86_64-unknown-linux-musl/release/mote-agent");
    let all = commands("how-to/initramfs.md", "\n## Build your own\n", "\n## ");
    let at = all.find(FIRST).expect("the first command that is run");
    let script = format!(
        "trap 'cat console' ERR\nversion={version}\nagent={}\n{}",
        agent.display(),
        &all[at..]
    );
    let (_, output) = Group::run(bash(&scratch.0, &script), &scratch.0.join("output"));
    let linux = format!("Linux {version}\n");
    contains(&output, &[&linux, "\nhello\n", "Status       Ready\n", "mote: info: CONNECTED 2:"]);
    contains(&output, &["exit code 129: the guest is gone\n"]);
}

#[test]
fn the_tutorial_works_as_written() {
    let scratch = Scratch::new();
    link_image(&scratch.0);
    // By default the test image has a shell on a second port and ignores the power button.
    let mut all = commands("tutorial.md", "\n## Boot\n", "\n## Next\n");
    for (of_page, of_test) in [
        ("--initrd initrd", "--initrd initrd --append mote.shell=console"),
        ("mote-host stop vm1", "mote-host stop --force vm1"),
    ] {
        assert_eq!(all.matches(of_page).count(), 1, "{of_page}");
        all = all.replace(of_page, of_test);
    }
    let script = format!("trap 'mote-host delete --force vm1 || true' ERR\n{all}");
    let mut bash = bash(&scratch.0, &script);
    bash.env("MOTE_HOST_ACCEL", "tcg");
    let (_, output) = Group::run(bash, &scratch.0.join("output"));
    contains(&output, &["\nhi\n", "\nhello\n", "Status       Ready\n"]);
    contains(&output, &["ok       agent: running, CONNECTED\n"]);
}
