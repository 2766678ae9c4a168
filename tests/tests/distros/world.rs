//! A VM with a disk of `image/debian`, and its host.

use std::ops::Deref;

use mote_tests::pages::measured;
use mote_tests::prelude::*;
use mote_tests::proc::PID;

use crate::systems::seconds;

/// Limit for a boot and an init system's actions, with software emulation on a busy machine.
pub(crate) const BOOT: Duration = Duration::from_secs(900);

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plan<'a> {
    pub(crate) incus: bool,
    pub(crate) host: &'a [&'a str],
    pub(crate) qemu: &'a [&'a str],
    pub(crate) nic: Option<&'static str>,
    /// A directory whose `add` is copied over the root before the VM boots.
    pub(crate) add: Option<&'a Path>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// From power-on to CONNECTED, on the host's clock.
    pub(crate) power_on: Duration,
    /// From the agent's start to CONNECTED, on the guest's clock.
    pub(crate) agent_start: Duration,
}

pub(crate) struct World(world::World);

impl Deref for World {
    type Target = world::World;

    fn deref(&self) -> &world::World {
        &self.0
    }
}

impl World {
    pub(crate) fn boot(system: &str, release: &str, plan: &Plan<'_>) -> Self {
        let image = image(system, release);
        let scratch = Scratch::new();
        // Discard changes of the disk.
        let disk =
            format!("file={},if=none,id=root,format=raw,snapshot=on", image.join("disk").display());
        let own = ["-drive", &disk, "-device", "virtio-blk-pci,drive=root"];
        let extra = own.iter().chain(plan.qemu).map(|word| (*word).to_owned()).collect();
        let flavour = if plan.incus { "incus" } else { "lxd" };
        let image = plan.add.map_or(image.clone(), |add| with_files(&image, add, &scratch.0));
        let spec = Spec { nic: plan.nic, memory: 512, image, extra, ..Spec::default() };
        let args = [&["--config", "user.foo=bar"], plan.host].concat();
        Self(world::World::with(scratch, &spec, flavour, &args, |_| {}))
    }

    pub(crate) fn connected(&mut self) -> Times {
        until("STARTED", BOOT, || self.host.state()["started"] == true);
        self.until_connected();
        let power_on = self.begun.elapsed();
        let text =
            self.sh(&format!("pid=$({PID}); cat /proc/$pid/stat /proc/uptime; mote-agent status"));
        let lines: Vec<_> = text.lines().collect();
        let seconds = |line: &str, at: usize| {
            let word = line.split(' ').nth(at).and_then(|word| word.parse().ok());
            Duration::from_secs_f64(word.unwrap_or_else(|| panic!("no number: {line}")))
        };
        let lasts = lines.iter().find(|line| line.starts_with("for: ")).expect("how long");
        let connected = seconds(lines[1], 0).saturating_sub(seconds(lasts, 1));
        let agent_start = connected.saturating_sub(proc::started(lines[0]));
        assert!(text.contains("state: CONNECTED\n"), "{text}");
        Times { power_on, agent_start }
    }

    pub(crate) fn until_connected(&mut self) {
        self.0.connected(BOOT);
    }

    pub(crate) fn pid(&self) -> String {
        self.sh(PID).trim().to_owned()
    }

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

    pub(crate) fn killed_and_back(&self) -> Duration {
        let pid = self.pid();
        self.last_words(&format!("kill -9 {pid}"));
        self.another_than(&pid)
    }

    pub(crate) fn stopped(&mut self) {
        self.host.stopped(BOOT);
        self.0.vm.ended(BOOT);
        let console = self.vm.console();
        let bad = |line: &&str| line.contains("mote") && line.to_lowercase().contains("fail");
        assert_eq!(console.lines().find(bad), None, "{console}");
    }
}

pub(crate) fn image(system: &str, release: &str) -> PathBuf {
    assert!(std::env::var_os("MOTE_DEB").is_some(), "MOTE_DEB: what 'scripts/package deb' printed");
    source::printed(Command::new("image/debian").args([system, release])).trim().into()
}

/// Returns a copy of the image whose initramfs copies these files into the root.
fn with_files(image: &Path, files: &Path, directory: &Path) -> PathBuf {
    let new = directory.join("image");
    fs::create_dir_all(&new).expect("a directory");
    symlink(image.join("vmlinuz"), new.join("vmlinuz")).expect("a link");
    fs::copy(image.join("initrd"), new.join("initrd")).expect("a copy");
    let archive = File::options().append(true).open(new.join("initrd")).expect("the copy");
    let mut pack = Command::new("bash");
    pack.args(["-c", "find add | sort | cpio --quiet -R 0:0 -H newc -o | gzip -1"]);
    assert!(pack.current_dir(files).stdout(archive).status().expect("cpio").success());
    new
}

// cloud-init in the guest with its LXD data source, which identifies LXD by the SMBIOS board name.

const ADDRESS: &str = "52:54:00:12:34:56";
/// Disables modules whose programs the image lacks.
const USER: &str = "#cloud-config\nlocale: false\nresize_rootfs: false\nssh_genkeytypes: []\nruncmd: [echo user-data >/srv/user-data]\n";
const VENDOR: &str =
    "#cloud-config\nwrite_files: [{path: /srv/vendor-data, content: vendor-data}]\n";
const NETWORK: &str = "version: 2\nethernets:\n  nic0:\n    match: {macaddress: \"52:54:00:12:34:56\"}\n    set-name: \
                       lan0\n    addresses: [192.0.2.7/24]\n";

fn all_arrives(release: &str) {
    let documents = [
        format!("cloud-init.user-data={USER}"),
        format!("cloud-init.vendor-data={VENDOR}"),
        format!("cloud-init.network-config={NETWORK}"),
    ];
    let config: Vec<_> = documents.iter().flat_map(|pair| ["--config", pair]).collect();
    let qemu = ["-smbios", "type=2,product=LXD"];
    let plan = Plan { host: &config, qemu: &qemu, nic: Some(ADDRESS), ..Plan::default() };
    let mut world = World::boot("cloud-init", release, &plan);
    let times = world.connected();
    let done = || world.host.sh("cat /run/cloud-init/result.json 2>/dev/null").ok();
    let (result, _) =
        wait("cloud-init", BOOT, || done().filter(|text| text.contains("datasource")));
    let version = world.sh("cloud-init --version 2>&1");
    let log = || world.sh("cat /var/log/cloud-init.log | grep -v DEBUG");
    assert!(
        result.contains("DataSourceLXD") && result.contains("\"errors\": []"),
        "{result}{}",
        log()
    );
    for (path, text) in [("/srv/user-data", "user-data\n"), ("/srv/vendor-data", "vendor-data")] {
        assert_eq!(world.host.sh(&format!("cat {path}")).as_deref(), Ok(text), "{}", log());
    }
    assert_eq!(world.sh("hostname; cat /etc/hostname"), format!("{NAME}\n{NAME}\n"));
    contains(world.sh("ip -o addr show dev lan0"), &["inet 192.0.2.7/24"]);
    assert_eq!(world.sh("systemctl --failed --no-legend --plain"), "");
    measured(
        &format!("cloud-init of {release}, power-on to CONNECTED"),
        &format!("{}, {}", version.trim().trim_start_matches("/usr/bin/"), seconds(times.power_on)),
    );
    world.last_words("poweroff");
    world.stopped();
}

mote_tests::tests! {
    debian_12: all_arrives("bookworm"),
    debian_13: all_arrives("trixie"),
}
