//! Prints how to boot a VM that finds this host: each device with its reason, as text for a shell.
//! Names and ids are those that real servers use and agents look for (P§2.1), as are SMBIOS,
//! balloon, RNG and generation (`DQ:Start`, `driver_qemu_templates.go`). Different from servers:
//! QEMU's default machine with a BIOS, and no NIC, display, keyboard and USB.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Result;

pub use devices::{YOURS, value};
use mote_client::common::printable::quoted;
use mote_client::instance::vsock_device::{DEVICE, DEVICE_LOCK};
use mote_client::{Instance, Vsock};

mod devices;

/// Default memory of the VM, in MiB.
pub const MEMORY: u32 = 256;
/// The guest's context id if vhost-device-vsock assigns it.
const STAND_IN_CID: u32 = 3;

/// Returns the description of a VM for vhost-device-vsock.
pub fn stand_in(uds: &Path, socket: &Path) -> String {
    let (uds, socket) = (uds.display(), socket.display());
    format!("guest-cid={STAND_IN_CID},uds-path={uds},socket={socket}")
}

/// The needs of an instance's VM.
pub struct Recipe<'a> {
    instance: &'a Instance,
    share: &'a Path,
    directory: PathBuf,
    /// Memory, MiB.
    pub memory: u32,
    /// The root disk's file and format.
    pub disk: Option<(PathBuf, String)>,
    /// cloud-init's seed.
    pub seed: Option<PathBuf>,
    /// What happens to writes to the root disk.
    pub writes: Writes,
    /// Whether processes other than the vsock device need the VM's memory.
    pub shared_memory: bool,
    pub machine: Machine,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Machine {
    /// A PC with PCI.
    #[default]
    Pc,
    /// QEMU's microvm: no PCI and no SMBIOS.
    Micro,
    /// QEMU's virt machine for aarch64.
    Arm,
    /// QEMU's virt machine for riscv64: no SMBIOS, and no CPU `max` in older versions.
    Riscv,
}

/// What happens to writes to a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// Writes change the disk.
    #[default]
    Kept,
    /// Writes are discarded with the VM.
    Forgotten,
}

impl<'a> Recipe<'a> {
    /// Returns the recipe of an instance; `share` is absolute.
    pub fn of(root: &Path, instance: &'a Instance, share: &'a Path) -> Self {
        let directory = share.parent().map_or_else(|| root.to_owned(), Path::to_owned);
        Self {
            instance,
            share,
            directory,
            memory: MEMORY,
            disk: None,
            seed: None,
            writes: Writes::Kept,
            shared_memory: false,
            machine: Machine::Pc,
        }
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Returns commands to run before QEMU, each with its reason.
    fn before(&self) -> Vec<(&'static str, String)> {
        let mut before = Vec::new();
        let word = |path: PathBuf| quoted(&path.display().to_string());
        if let Vsock::Uds(path) = &self.instance.vsock {
            let socket = self.beside(DEVICE);
            let (vm, socket) = (quoted(&stand_in(path, &socket)), word(socket));
            let lock = word(self.beside(DEVICE_LOCK));
            before.push((
                "vsock through a process, for machines without /dev/vhost-vsock (cargo install \
                 vhost-device-vsock). mote-host's\n# daemon ends it with the VM; one that still \
                 runs is reused",
                format!(
                    "flock -w 1 {lock} rm -f {socket} || :\n\
                     flock -n {lock} vhost-device-vsock --vm {vm} &\n\
                     for try in 1 2 3 4 5 6 7 8 9; do [ -S {socket} ] || sleep 0.2; done"
                ),
            ));
        }
        let mut iso = |why, label: &str, file: &str, from: &Path| {
            let (file, from) = (word(self.beside(file)), word(from.to_owned()));
            before.push((why, format!("genisoimage -quiet -R -J -V {label} -o {file} {from}")));
        };
        let why = "the config share as a disk, created again before each boot";
        iso(why, "incus-agent", "config.iso", self.share);
        if let Some(seed) = &self.seed {
            iso("cloud-init's seed, likewise", "cidata", "seed.iso", seed);
        }
        before
    }

    pub fn arguments(&self) -> impl Iterator<Item = String> {
        self.options().0.into_iter().flat_map(|(_, arguments)| arguments)
    }
}

impl fmt::Display for Recipe<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.instance.name;
        writeln!(out, "# Boots a VM as {name}; paste all of it into bash.")?;
        if let Vsock::Plain(prefix) = &self.instance.vsock {
            let prefix = quoted(&prefix.display().to_string());
            let reached = format!("the host reaches only mote-agent --vsock-unix {prefix}");
            writeln!(out, "# It has no vsock: {reached}.")?;
        }
        for (why, command) in self.before() {
            writeln!(out, "# {why}\n{command}")?;
        }
        writeln!(out, "mote=(")?;
        for (why, arguments) in self.options().0 {
            let words: Vec<String> = arguments.iter().map(|word| quoted(word)).collect();
            writeln!(out, "  # {why}\n  {}", words.join(" "))?;
        }
        // Under emulation on a busy machine ticks are late, and Linux would consider its timer
        // broken.
        let (yours, boot) = match self.disk {
            Some(_) => ("The console is", ""),
            None => (
                "Kernel, initrd and console are",
                " \\\n  -kernel vmlinuz -initrd initrd -append 'console=ttyS0 no_timer_check panic=-1'",
            ),
        };
        writeln!(
            out,
            ")\n# {yours} yours:\nqemu-system-x86_64 -nodefaults -display none -no-reboot \
             -serial stdio{boot} \"${{mote[@]}}\""
        )
    }
}

/// Returns a disk image and its format, which is never detected from its content.
pub fn root_disk(said: &str) -> Result<(PathBuf, String)> {
    const FORMATS: [&str; 2] = ["raw", "qcow2"];
    let (file, format) = match said.rsplit_once('=') {
        Some((file, format)) if FORMATS.contains(&format) => (file, format),
        _ if said.ends_with(".qcow2") => (said, "qcow2"),
        _ => (said, "raw"),
    };
    Ok((std::path::absolute(file)?, format.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mote_client::Flavour;
    use mote_client::instance::{GENERATION, UUID};

    fn recipe(instance: &Instance) -> (Vec<String>, String) {
        let recipe = Recipe::of(Path::new("/d"), instance, Path::new("/d/instances/vm1/config"));
        (recipe.arguments().collect(), recipe.to_string())
    }

    #[test]
    fn uses_the_servers_names_and_ids() {
        for (flavour, name, ports, ring) in [
            (Flavour::Lxd, "name=com.canonical.lxd,", 2, 16),
            (Flavour::Incus, "name=org.linuxcontainers.incus,", 2, 16_384),
            (Flavour::LxdOld, "name=org.linuxcontainers.lxd,", 1, 16),
        ] {
            let (arguments, _) = recipe(&Instance::sample(flavour, &[]));
            let count = |mark: &str| arguments.iter().filter(|word| word.contains(mark)).count();
            assert_eq!(count("chardev=qemu_serial-chardev,"), 1, "{arguments:?}");
            let ring = format!("ringbuf,id=qemu_serial-chardev,size={ring}");
            assert!(arguments.contains(&ring), "{arguments:?}");
            assert_eq!((count(name), count("virtserialport,")), (1, ports), "{arguments:?}");
        }
    }

    #[test]
    fn each_transport_has_its_device() {
        let mut vm = Instance::sample(Flavour::Lxd, &[]);
        vm.vsock = Vsock::Cid(7);
        assert!(recipe(&vm).0.contains(&"vhost-vsock-pci,guest-cid=7".to_owned()));
        vm.vsock = Vsock::Plain("/d/p".into());
        assert!(recipe(&vm).1.contains("mote-agent --vsock-unix /d/p"));
    }

    #[test]
    fn smbios_matches_each_server() {
        let config = [
            ("smbios11.a", "b,c"),
            ("systemd.credential.x", "y"),
            ("systemd.credential-binary.x2", "eXk="),
        ];
        let smbios = |flavour| {
            let (arguments, _) = recipe(&Instance::sample(flavour, &config));
            let all = arguments.into_iter().filter(|argument| argument.starts_with("type="));
            all.collect::<Vec<_>>()
        };
        assert_eq!(smbios(Flavour::Lxd), ["type=2,manufacturer=Canonical Ltd.,product=LXD"]);
        let incus = [
            "type=2,manufacturer=LinuxContainers,product=Incus",
            "type=11,value=a=b,,c",
            "type=11,value=io.systemd.credential.binary:x2=eXk=",
            "type=11,value=io.systemd.credential:x=y",
        ];
        assert_eq!(smbios(Flavour::Incus), incus);
    }

    #[test]
    fn omits_devices_that_a_machine_lacks() {
        let instance = Instance::sample(Flavour::Lxd, &[(UUID, "u-u"), (GENERATION, "g-g")]);
        let mut recipe =
            Recipe::of(Path::new("/d"), &instance, Path::new("/d/instances/vm1/config"));
        for (machine, smbios, cpu, generation) in [
            (Machine::Pc, true, true, true),
            (Machine::Micro, false, true, false),
            (Machine::Arm, true, true, false),
            (Machine::Riscv, false, false, false),
        ] {
            recipe.machine = machine;
            let arguments: Vec<_> = recipe.arguments().collect();
            let has = |word: &str| arguments.iter().any(|argument| argument == word);
            assert_eq!((has("-smbios"), has("max")), (smbios, cpu), "{machine:?}");
            assert_eq!(has("vmgenid,guid=g-g"), generation, "{machine:?}");
            assert!(has("u-u") && has("virtio-rng-pci,rng=rng"), "{machine:?}: {arguments:?}");
        }
    }

    #[test]
    fn uses_the_given_format_or_the_file_extension() {
        let of = |said: &str| {
            let (file, format) = root_disk(said).unwrap();
            (file.to_str().unwrap().to_owned(), format)
        };
        for (said, file, format) in [
            ("/a.img", "/a.img", "raw"),
            ("/a.qcow2", "/a.qcow2", "qcow2"),
            ("/a.qcow2=raw", "/a.qcow2", "raw"),
            ("/a=b", "/a=b", "raw"),
            ("/a=b=qcow2", "/a=b", "qcow2"),
        ] {
            assert_eq!(of(said), (file.to_owned(), format.to_owned()), "{said}");
        }
    }
}
