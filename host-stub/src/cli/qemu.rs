//! How a VM is booted that finds this host: each device with its reason, as text to be pasted into a
//! shell. The names and ids are those that real servers give and agents look for (P§2.1).

use std::fmt;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;

use crate::common::shell::quoted;
use crate::instance::store;
use crate::instance::{Channel, Flavour, Instance, Vsock};

/// Memory of the VM unless told otherwise, MiB.
const MEMORY: u32 = 256;
/// The guest's context id where a stand-in for vsock gives it one.
const STAND_IN_CID: u32 = 3;
/// QEMU's ring buffer under LXD, and under Incus before 7.0.1, bytes (P§2.1).
const RING: u32 = 16;
/// The same under Incus from 7.0.1 on, where an agent without vsock tells its state by it (P§2.4).
const RING_OF_INCUS: u32 = 16 * 1024;

/// `qemu`.
#[derive(Debug, Args)]
pub(crate) struct QemuArgs {
    /// The instance
    name: String,
    /// Memory of the VM, MiB
    #[arg(long, value_name = "MIB", default_value_t = MEMORY)]
    memory: u32,
    /// Print only QEMU's arguments, one a line
    #[arg(long)]
    args: bool,
}

/// Prints it.
pub(crate) fn run(root: &Path, args: &QemuArgs) -> Result<()> {
    let instance = store::load(root, &args.name)?;
    let share = std::path::absolute(store::share(root, &args.name))?;
    let recipe = Recipe { memory: args.memory, ..Recipe::of(root, &instance, &share) };
    if !args.args {
        return Ok(write!(stdout(), "{recipe}")?);
    }
    for argument in recipe.options().into_iter().flat_map(|option| option.arguments) {
        writeln!(stdout(), "{argument}")?;
    }
    Ok(())
}

/// What a VM of an instance needs.
pub(crate) struct Recipe<'a> {
    instance: &'a Instance,
    share: &'a Path,
    /// The instance's own directory.
    directory: PathBuf,
    memory: u32,
}

/// Some of QEMU's arguments that belong together.
struct QemuOption {
    why: String,
    arguments: Vec<String>,
}

impl<'a> Recipe<'a> {
    /// Of an instance; `share` is absolute.
    pub(crate) fn of(root: &Path, instance: &'a Instance, share: &'a Path) -> Self {
        let directory = share.parent().map_or_else(|| root.to_owned(), Path::to_owned);
        Self { instance, share, directory, memory: MEMORY }
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Commands that come before QEMU, each with its reason.
    fn before(&self) -> Vec<(&'static str, String)> {
        let mut before = Vec::new();
        if let Vsock::Uds(path) = &self.instance.vsock {
            let socket = self.beside("vhost");
            let vm = format!(
                "guest-cid={STAND_IN_CID},uds-path={},socket={}",
                path.display(),
                socket.display()
            );
            let (vm, socket) = (quoted(&vm), quoted(&socket.display().to_string()));
            before.push((
                "vsock by a process, for machines without /dev/vhost-vsock (cargo install \
                 vhost-device-vsock); once, later boots find it",
                format!(
                    "vhost-device-vsock --vm {vm} &\nfor try in 1 2 3 4 5 6 7 8 9; do [ -S {socket} ] || \
                     sleep 0.2; done"
                ),
            ));
        }
        let iso = quoted(&self.beside("config.iso").display().to_string());
        let share = quoted(&self.share.display().to_string());
        before.push((
            "the config share as a disk, made anew before each boot",
            format!("genisoimage -quiet -R -J -V incus-agent -o {iso} {share}"),
        ));
        before
    }

    /// QEMU's arguments.
    fn options(&self) -> Vec<QemuOption> {
        let mut options = Vec::new();
        let mut add = |why: &str, arguments: &[&str]| {
            let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
            options.push(QemuOption { why: why.to_owned(), arguments });
        };
        add(
            "a serial bus for the status port (guest: virtio_pci, virtio_console)",
            &["-device", "virtio-serial-pci,id=serial"],
        );
        let ring = match self.instance.flavour {
            Flavour::Incus => RING_OF_INCUS,
            Flavour::Lxd | Flavour::LxdOld => RING,
        };
        let (monitor, status, why) = match &self.instance.channel {
            Channel::Qmp(path) => (
                Some(format!("unix:{},server=on,wait=off", value(path))),
                format!("ringbuf,id=qemu_serial-chardev,size={ring}"),
                "what the agent writes: a ring buffer, which the host reads by this very id",
            ),
            Channel::Serial { path, .. } => (
                None,
                format!("socket,id=qemu_serial-chardev,path={},server=on,wait=off", value(path)),
                "what the agent writes and reads: a socket, to which mote-host connects",
            ),
        };
        if let Some(monitor) = &monitor {
            add("QEMU's monitor, by which mote-host reads the status port", &["-qmp", monitor]);
        }
        add(why, &["-chardev", &status]);
        let name = self.instance.flavour.port_name();
        let port = format!(
            "virtserialport,bus=serial.0,chardev=qemu_serial-chardev,name={name},id=qemu_serial"
        );
        add(
            "the status port; by its name the agent finds it and knows the server",
            &["-device", &port],
        );
        if self.instance.flavour != Flavour::LxdOld {
            let old = Flavour::LxdOld.port_name();
            let dummy = format!("virtserialport,bus=serial.0,name={old},id=legacy");
            add(
                "the port's old name, which current servers keep beside it, empty",
                &["-device", &dummy],
            );
        }
        self.vsock(&mut add);
        let drive = format!(
            "file={},if=none,id=config,format=raw,readonly=on",
            value(&self.beside("config.iso"))
        );
        add(
            "the config share: certificates (guest: virtio_blk, isofs)",
            &["-drive", &drive, "-device", "virtio-blk-pci,drive=config"],
        );
        options
    }

    fn vsock(&self, add: &mut impl FnMut(&str, &[&str])) {
        let memory = format!("{}M", self.memory);
        match &self.instance.vsock {
            Vsock::Uds(_) => {
                let backend = format!("memory-backend-memfd,id=mem,size={memory},share=on");
                add(
                    "memory that vhost-device-vsock can read; both sizes are the same",
                    &["-m", &memory, "-object", &backend, "-machine", "memory-backend=mem"],
                );
                let socket = format!("socket,id=vsock,path={}", value(&self.beside("vhost")));
                let device = "vhost-user-vsock-pci,chardev=vsock";
                add(
                    "vsock, on which host and agent call each other (guest: \
                     vmw_vsock_virtio_transport)",
                    &["-chardev", &socket, "-device", device],
                );
            }
            Vsock::Cid(cid) => {
                add("memory", &["-m", &memory]);
                add(
                    "vsock, on which host and agent call each other (guest: \
                     vmw_vsock_virtio_transport)",
                    &["-device", &format!("vhost-vsock-pci,guest-cid={cid}")],
                );
            }
            // An agent on this machine; there is no device.
            Vsock::Plain(_) => add("memory", &["-m", &memory]),
        }
    }
}

impl fmt::Display for Recipe<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.instance.name;
        writeln!(out, "# How to boot a VM as {name}; to be pasted into bash, in one piece.")?;
        if let Vsock::Plain(prefix) = &self.instance.vsock {
            let prefix = quoted(&prefix.display().to_string());
            writeln!(out, "# It has no vsock: only mote-agent --vsock-unix {prefix} is reached.")?;
        }
        for (why, command) in self.before() {
            writeln!(out, "# {why}\n{command}")?;
        }
        writeln!(out, "mote=(")?;
        for option in self.options() {
            let words: Vec<String> = option.arguments.iter().map(|word| quoted(word)).collect();
            writeln!(out, "  # {}\n  {}", option.why, words.join(" "))?;
        }
        writeln!(
            out,
            ")\n# Kernel, initrd and console are yours:\nqemu-system-x86_64 -nodefaults \
             -display none -no-reboot -serial stdio \\\n  -kernel vmlinuz -initrd initrd -append \
             'console=ttyS0 panic=-1' \"${{mote[@]}}\""
        )
    }
}

/// A path inside of one of QEMU's options, where a comma ends a value unless it is doubled.
fn value(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::tests::instance;

    fn recipe(instance: &Instance) -> (Vec<String>, String) {
        let recipe = Recipe::of(Path::new("/d"), instance, Path::new("/d/instances/vm1/config"));
        let arguments = recipe.options().into_iter().flat_map(|option| option.arguments).collect();
        (arguments, recipe.to_string())
    }

    #[test]
    fn names_and_ids_are_those_that_servers_give() {
        for (flavour, name, ports, ring) in [
            (Flavour::Lxd, "name=com.canonical.lxd,", 2, 16),
            (Flavour::Incus, "name=org.linuxcontainers.incus,", 2, 16_384),
            (Flavour::LxdOld, "name=org.linuxcontainers.lxd,", 1, 16),
        ] {
            let (arguments, _) = recipe(&instance(flavour, &[]));
            let count = |mark: &str| arguments.iter().filter(|word| word.contains(mark)).count();
            assert_eq!(count("chardev=qemu_serial-chardev,"), 1, "{arguments:?}");
            let ring = format!("ringbuf,id=qemu_serial-chardev,size={ring}");
            assert!(arguments.contains(&ring), "{arguments:?}");
            assert_eq!((count(name), count("virtserialport,")), (1, ports), "{arguments:?}");
        }
    }

    #[test]
    fn each_way_to_the_guest_has_its_device() {
        let mut vm = instance(Flavour::Lxd, &[]);
        vm.vsock = Vsock::Cid(7);
        assert!(recipe(&vm).0.contains(&"vhost-vsock-pci,guest-cid=7".to_owned()));
        vm.vsock = Vsock::Uds("/d/vs".into());
        let (arguments, text) = recipe(&vm);
        assert!(arguments.contains(&"vhost-user-vsock-pci,chardev=vsock".to_owned()));
        assert!(
            text.contains("guest-cid=3,uds-path=/d/vs,socket=/d/instances/vm1/vhost &\n"),
            "{text}"
        );
        vm.vsock = Vsock::Plain("/d/p".into());
        assert!(recipe(&vm).1.contains("mote-agent --vsock-unix /d/p"));
    }

    #[test]
    fn odd_paths_survive_the_shell_and_qemu() {
        let mut vm = instance(Flavour::Lxd, &[]);
        vm.channel = Channel::Qmp("/it's a,b/qmp".into());
        let (arguments, text) = recipe(&vm);
        assert!(arguments.contains(&"unix:/it's a,,b/qmp,server=on,wait=off".to_owned()));
        assert!(text.contains("'unix:/it'\\''s a,,b/qmp,server=on,wait=off'"), "{text}");
    }
}
