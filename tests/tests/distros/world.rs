//! A VM with a disk of `image/debian`, and its host.

use std::fs::File;
use std::ops::Deref;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mote_tests::pages::file::{committed, write};
use mote_tests::proc::{PID, kilobytes, started};
use mote_tests::{NAME, Scratch, Spec, wait, world};

/// Limit for a boot and an init system's actions, with software emulation on a busy machine.
pub(crate) const BOOT: Duration = Duration::from_secs(900);

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plan<'a> {
    pub(crate) incus: bool,
    pub(crate) host: &'a [&'a str],
    pub(crate) qemu: &'a [&'a str],
    /// MAC address of a NIC.
    pub(crate) nic: Option<&'static str>,
    /// A directory whose `add` is copied over the root before it boots.
    pub(crate) add: Option<&'a Path>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// From power-on to CONNECTED, by the host's clock.
    pub(crate) power_on: Duration,
    /// From the agent's start to its CONNECTED, by the guest's clock.
    pub(crate) agent_start: Duration,
    pub(crate) pss: u64,
}

#[derive(Debug)]
pub(crate) struct World {
    world: world::World,
    /// Growth of the image by the package, bytes.
    pub(crate) added: u64,
}

impl Deref for World {
    type Target = world::World;

    fn deref(&self) -> &world::World {
        &self.world
    }
}

impl World {
    /// Boots the image, and builds it first if it does not exist.
    pub(crate) fn boot(system: &str, release: &str, plan: &Plan<'_>) -> Self {
        let image = image(system, release);
        let added = std::fs::read_to_string(image.join("added")).expect("the package's bytes");
        let added = added.trim().parse().expect("a number");
        let scratch = Scratch::new();
        // The disk's changes are discarded.
        let disk =
            format!("file={},if=none,id=root,format=raw,snapshot=on", image.join("disk").display());
        let own = ["-drive", &disk, "-device", "virtio-blk-pci,drive=root"];
        let extra = own.iter().chain(plan.qemu).map(|word| (*word).to_owned()).collect();
        let (port, flavour) = if plan.incus {
            ("org.linuxcontainers.incus", "incus")
        } else {
            ("com.canonical.lxd", "lxd")
        };
        let image = plan.add.map_or(image.clone(), |add| with_files(&image, add, &scratch.0));
        let spec = Spec { port, nic: plan.nic, memory: 512, image, extra, ..Spec::default() };
        let args = [&["--config", "user.foo=bar"], plan.host].concat();
        Self { world: world::World::with(scratch, &spec, flavour, &args, |_| {}), added }
    }

    pub(crate) fn connected(&mut self) -> Times {
        wait("STARTED", BOOT, || (self.host.state()["started"] == true).then_some(()));
        self.until_connected();
        let power_on = self.begun.elapsed();
        let text = self.sh(&format!(
            "pid=$({PID}); cat /proc/$pid/stat /proc/uptime; mote-agent status; \
             cat /proc/$pid/smaps_rollup"
        ));
        let lines: Vec<_> = text.lines().collect();
        let seconds = |line: &str, at: usize| {
            let word = line.split(' ').nth(at).and_then(|word| word.parse().ok());
            Duration::from_secs_f64(word.unwrap_or_else(|| panic!("no number: {line}")))
        };
        let lasts = lines.iter().find(|line| line.starts_with("for: ")).expect("how long");
        let connected = seconds(lines[1], 0).saturating_sub(seconds(lasts, 1));
        let agent_start = connected.saturating_sub(started(lines[0]));
        assert!(text.contains("state: CONNECTED\n"), "{text}");
        let pss = kilobytes(&text, "Pss:").expect("its size");
        println!(
            "CONNECTED {power_on:?} after power-on, {agent_start:?} after the agent's start, {pss} KiB"
        );
        Times { power_on, agent_start, pss }
    }

    pub(crate) fn until_connected(&mut self) {
        self.world.connected(BOOT);
    }

    pub(crate) fn pid(&self) -> String {
        self.sh(PID).trim().to_owned()
    }

    /// Starts a command that ends the agent.
    pub(crate) fn last_words(&self, script: &str) {
        let mut said = self.host.launch(&["exec", "-n", NAME, "--", "sh", "-c", script]);
        // The command ends with the agent.
        let _code = wait("its end", BOOT, || said.0.try_wait().ok().flatten());
    }

    /// Waits until an agent with a different pid runs commands. Returns the time.
    pub(crate) fn another_than(&self, pid: &str) -> Duration {
        let look =
            || self.host.sh(PID).ok().filter(|now| !now.trim().is_empty() && now.trim() != pid);
        wait("another agent", BOOT, look).1
    }

    /// Kills the agent. Returns the time until commands run again.
    pub(crate) fn killed_and_back(&self) -> Duration {
        let pid = self.pid();
        self.last_words(&format!("kill -9 {pid}"));
        self.another_than(&pid)
    }

    /// Waits until the guest has reported STOPPED and powered off.
    pub(crate) fn stopped(&mut self) {
        self.host.stopped(BOOT);
        self.world.vm.ended(BOOT);
        let console = self.vm.console();
        let bad = |line: &&str| line.contains("mote") && line.to_lowercase().contains("fail");
        assert_eq!(console.lines().find(bad), None, "{console}");
    }
}

/// Returns the directory of a disk, which it builds if it does not exist.
pub(crate) fn image(system: &str, release: &str) -> PathBuf {
    assert!(std::env::var_os("MOTE_DEB").is_some(), "MOTE_DEB: what 'scripts/package deb' printed");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let made = Command::new("image/debian").args([system, release]).current_dir(source).output();
    let made = made.expect("image/debian");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(made.status.success(), "{system}: {}{}", text(&made.stdout), text(&made.stderr));
    text(&made.stdout).trim().into()
}

/// Returns a copy of the image whose initramfs copies these files into the root.
fn with_files(image: &Path, files: &Path, directory: &Path) -> PathBuf {
    let new = directory.join("image");
    std::fs::create_dir_all(&new).expect("a directory");
    symlink(image.join("vmlinuz"), new.join("vmlinuz")).expect("a link");
    std::fs::copy(image.join("initrd"), new.join("initrd")).expect("a copy");
    let archive = File::options().append(true).open(new.join("initrd")).expect("the copy");
    let mut pack = Command::new("bash");
    pack.args(["-c", "find add | sort | cpio --quiet -R 0:0 -H newc -o | gzip -1"]);
    assert!(pack.current_dir(files).stdout(archive).status().expect("cpio").success());
    new
}

const PAGE: &str = "results/boots.md";

/// Prints a figure. With `MOTE_WRITE_DOCS` also writes it to its line of the page.
pub(crate) fn measured(what: &str, figure: &str) {
    println!("{what}: {figure}");
    let page = committed(PAGE);
    let begin = format!("| {what} | ");
    let mut found = false;
    let line = |line: &str| {
        let own = line.starts_with(&begin);
        found |= own;
        if own { format!("{begin}{figure} |\n") } else { format!("{line}\n") }
    };
    let new: String = page.lines().map(line).collect();
    assert!(found, "docs/{PAGE} has no line \"{begin}\"");
    write(PAGE, &new);
}
