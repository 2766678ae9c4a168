//! The VM of a run: its instance and QEMU's command line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::args::{Arch, MachineKind, Network, VmArgs};
use super::check;
use super::child::{self, Helper};
use super::share::{self, Share, Virtiofs};
use crate::accel::{self, Accel};
use mote_client::common::printable::{complain, word};
use mote_client::common::random::{number, uuid};
use mote_client::common::whole_file::write_whole;
use mote_client::instance::vsock_device::{DEVICE, DEVICE_LOCK};
use mote_client::instance::{Channel, GENERATION, Instance, UUID, Vsock, store};
use mote_vm::recipe::{Machine, Recipe, STAND_IN_CID, Writes, root_disk};
use mote_vm::{initramfs, iso, overlay};

/// Default memory, MiB.
const MEMORY: u32 = 256;
const MEMORY_WITH_DISK: u32 = 512;
/// The configuration key from which cloud-init reads if it detects LXD by the devlxd socket; it
/// then ignores the seed.
const USER_DATA: &str = "cloud-init.user-data";
/// With ACPI it has a timer only under KVM. Without ACPI, the devices are on the kernel's command
/// line (CONFIG_VIRTIO_MMIO_CMDLINE_DEVICES), and the RTC has the IRQ of one.
const MICRO_TCG: &str = "microvm,acpi=off,rtc=off";
/// Its virtio devices (QEMU's `hw/i386/microvm.c`; 24 with ACPI).
const MICRO_TCG_DEVICES: usize = 8;
/// Volume labels of the disks.
const SHARE: &str = "incus-agent";
const SEED: &str = "cidata";
/// The replacement of the kernel's vsock. Users may install it in `~/.cargo/bin`.
const VSOCK_PROGRAM: &str = "vhost-device-vsock";
const VSOCK_DEVICE: &str = "/dev/vhost-vsock";

/// What to boot, resolved on this machine.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) instance: Instance,
    pub(crate) used: Accel,
    /// Why KVM is not used.
    pub(crate) why_tcg: String,
    pub(crate) qemu: PathBuf,
    /// The program that replaces the kernel's vsock.
    pub(crate) vsock: Option<PathBuf>,
    pub(crate) shares: Vec<Share>,
    arch: Arch,
    args: VmArgs,
    directory: PathBuf,
}

impl Plan {
    pub(crate) fn new(root: &Path, name: &str, args: &VmArgs, scratch: &Path) -> Result<Self> {
        check::vm(args)?;
        let hardware = &args.hardware;
        let arch = hardware.arch.unwrap_or_else(Arch::ours);
        let program = format!("qemu-system-{}", word(arch));
        let program = hardware.qemu.clone().unwrap_or_else(|| program.into());
        let qemu = child::find(&program, &[]).with_context(|| {
            format!("{} not found (Debian: qemu-system-x86, qemu-system-arm)", program.display())
        })?;
        let (vsock, way) = vsock(root, name)?;
        // On virtio-mmio, QEMU 7.2's virtiofs gets its first answer only: 9p or a copy is used.
        let may_be_virtiofs = !args.share.is_empty() && hardware.machine == MachineKind::Pci;
        let virtiofsd = may_be_virtiofs.then(share::virtiofsd).flatten();
        let (used, why_tcg) = accel::choose(hardware.accel, &qemu, &word(arch), scratch);
        let mut shares = args.share.clone();
        let own = root.canonicalize()?;
        for share in &mut shares {
            if !share.read_only && own.starts_with(&share.source) {
                let (own, share) = (own.display(), share.source.display());
                bail!(
                    "--share {share}: the guest could change this program's own files in {own}; add :ro, share a directory \
                     below it, or set TMPDIR (of boot: --dir) to one that is not shared"
                );
            }
            if share.is_exposed() {
                let said = "as root, and other users can enter it: setuid files of the guest are setuid here. \
                            Add :ro, close the directory above to others, or run this as another user";
                complain(&format!("the guest writes to {} {said}", share.source.display()));
            }
            share.virtiofs = virtiofsd.as_ref().and_then(|program| Virtiofs::of(program, share));
        }
        let devices = shares.iter().enumerate();
        let devices =
            devices.map(|(number, share)| (Share::name(number), share.device(hardware.flavour)));
        let id = uuid();
        let mut config: BTreeMap<_, _> =
            [UUID, GENERATION].map(|key| (key.to_owned(), id.clone())).into();
        if let Some(file) = &args.user_data {
            let said = || format!("--user-data {}", file.display());
            let text = std::fs::read_to_string(file).with_context(said)?;
            config.insert(USER_DATA.to_owned(), text);
        }
        config.extend(args.config.iter().cloned());
        let instance = Instance {
            name: name.to_owned(),
            flavour: hardware.flavour,
            vsock: way,
            channel: Channel::Qmp(store::directory(root, name).join("qmp")),
            config,
            devices: devices.collect(),
        };
        let directory = store::directory(root, name);
        let mut args = args.clone();
        for path in args.kernel.iter_mut().chain(&mut args.initrd) {
            *path = std::path::absolute(&*path)?;
        }
        Ok(Self { instance, used, why_tcg, qemu, vsock, shares, arch, args, directory })
    }

    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(crate) fn share_socket(&self, number: usize) -> PathBuf {
        self.beside(&format!("fs{number}"))
    }

    pub(crate) fn helpers(&self) -> Vec<Helper> {
        let mut helpers = Vec::new();
        if let (Some(program), Vsock::Uds(uds)) = (&self.vsock, &self.instance.vsock) {
            let socket = self.beside(DEVICE);
            let (uds, path) = (uds.display(), socket.display());
            let vm = format!("guest-cid={STAND_IN_CID},uds-path={uds},socket={path}");
            let arguments = vec!["--vm".to_owned(), vm];
            let lock = self.beside(DEVICE_LOCK);
            let directory = self.directory.clone();
            helpers.push(Helper { program: program.clone(), arguments, socket, lock, directory });
        }
        helpers.extend(self.shares.iter().enumerate().filter_map(|(number, share)| {
            Some(share.virtiofs.as_ref()?.helper(share, self.share_socket(number)))
        }));
        helpers
    }

    /// Writes the files that QEMU reads, including the current config share.
    pub(crate) fn write_files(&self, root: &Path) -> Result<()> {
        write_config(root, &self.instance)?;
        let write = |file: &str, bytes: Vec<u8>| {
            let path = self.beside(file);
            std::fs::write(&path, bytes).with_context(|| path.display().to_string())
        };
        if let Some(user_data) = &self.args.user_data {
            write("seed.iso", self.seed(user_data)?)?;
        }
        if let (Some(mote), Some(initrd)) = (&self.args.mote, self.args.initrd.first()) {
            write("initrd", initramfs::with_agent(initrd, mote, &self.init().0)?)?;
        }
        Ok(())
    }

    /// Returns cloud-init's NoCloud disk. Its instance id differs each time.
    fn seed(&self, user_data: &Path) -> Result<Vec<u8>> {
        let directory = self.beside("seed");
        std::fs::create_dir_all(&directory)?;
        std::fs::copy(user_data, directory.join("user-data")).context("user-data")?;
        let id = self.instance.config.get(UUID).map_or("mote", String::as_str);
        let about = format!("instance-id: {id}\nlocal-hostname: {}\n", self.instance.name);
        std::fs::write(directory.join("meta-data"), about)?;
        iso::image(&directory, SEED)
    }

    /// Replaces the root disk by an overlay, so that its file is not written.
    pub(crate) fn overlay_disk(&mut self) -> Result<()> {
        let disk = self.args.disk.as_deref().map(root_disk).transpose()?;
        let Some((base, format)) = disk.filter(|_| !self.args.write) else { return Ok(()) };
        let overlay = self.beside("root.qcow2");
        overlay::create(&overlay, &base, &format)?;
        self.args.disk = Some(format!("{}=qcow2", overlay.display()));
        self.args.write = true;
        Ok(())
    }

    /// Returns the directory for the guest's writes: next to the disk, or QEMU's directory for
    /// temporary files, which is never /tmp, whatever TMPDIR is.
    pub(crate) fn written_to(&self) -> PathBuf {
        let disk = self.args.disk.as_deref().map(root_disk).and_then(Result::ok);
        match disk {
            Some((file, _)) if self.args.write => file.parent().unwrap_or(&file).to_owned(),
            Some(_) | None => std::env::var_os("TMPDIR")
                .map(PathBuf::from)
                .filter(|path| path.is_absolute() && path != Path::new("/tmp"))
                .unwrap_or_else(|| "/var/tmp".into()),
        }
    }

    /// Returns QEMU's arguments, with the console in this file.
    pub(crate) fn arguments(
        &self,
        root: &Path,
        console: &Path,
        verbose: bool,
    ) -> Result<Vec<String>> {
        let hardware = &self.args.hardware;
        let mut all: Vec<String> =
            ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
                .map(String::from)
                .into();
        let is_micro = hardware.machine == MachineKind::Microvm;
        let machine = match self.arch {
            Arch::X86 if is_micro && self.used == Accel::Tcg => MICRO_TCG,
            Arch::X86 if is_micro => "microvm",
            // As the servers use. With pc, Linux asks ACPI for each device's interrupts, which
            // takes 0.2 s per device under emulation.
            Arch::X86 => "q35",
            Arch::Aarch64 | Arch::Riscv64 => "virt",
        };
        let cpus = hardware.cpus.unwrap_or(if self.used == Accel::Kvm { 2 } else { 1 });
        let console = console.display().to_string().replace(',', ",,");
        for (option, value) in [
            ("-machine", format!("{machine},accel={}", word(self.used))),
            ("-smp", cpus.to_string()),
            ("-chardev", format!("file,id=console,path={console}")),
            ("-serial", "chardev:console".to_owned()),
        ] {
            all.extend([option.to_owned(), value]);
        }
        // The guest's kernel reports a panic through it, if it has the driver.
        let panic = if self.arch == Arch::X86 { "pvpanic" } else { "pvpanic-pci" };
        all.extend(["-device", panic].map(String::from));
        let share = store::share(root, &self.instance.name);
        let mut recipe = Recipe::of(root, &self.instance, &share);
        recipe.disk = self.args.disk.as_deref().map(root_disk).transpose()?;
        recipe.writes = if self.args.write { Writes::Kept } else { Writes::Forgotten };
        recipe.seed = self.args.user_data.clone();
        recipe.shared_memory = self.shares.iter().any(|share| share.virtiofs.is_some());
        recipe.machine = match self.arch {
            Arch::X86 if is_micro => Machine::Micro,
            Arch::X86 => Machine::Pc,
            Arch::Aarch64 => Machine::Arm,
            Arch::Riscv64 => Machine::Riscv,
        };
        let usual = if recipe.disk.is_some() { MEMORY_WITH_DISK } else { MEMORY };
        recipe.memory = hardware.memory.unwrap_or(usual);
        all.extend(recipe.arguments());
        for (number, share) in self.shares.iter().enumerate() {
            all.extend(share.arguments(number, &self.instance, &self.share_socket(number)));
        }
        if hardware.network == Network::User {
            let nic = ["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile="];
            all.extend(nic.map(String::from));
        }
        if is_micro {
            let devices = all.iter_mut().map(on_mmio).filter(|is_virtio| *is_virtio).count();
            if machine == MICRO_TCG && devices > MICRO_TCG_DEVICES {
                bail!(
                    "--machine microvm has {MICRO_TCG_DEVICES} virtio devices without KVM, not \
                     {devices}: use fewer shares, or no network"
                );
            }
        }
        self.kernel(verbose, &mut all);
        all.extend(hardware.qemu_arg.iter().flat_map(|words| words.0.iter().cloned()));
        Ok(all)
    }

    /// Returns the program that the kernel starts, and the other words of `--append`. With
    /// `--mote`, mote's init starts it instead, and words after `--` are its arguments.
    fn init(&self) -> (String, Vec<&str>) {
        const OPTION: &str = "rdinit=";
        let mut words: Vec<&str> =
            self.args.append.iter().flat_map(|words| words.split(' ')).collect();
        let ours = words.iter().position(|word| *word == "--").unwrap_or(words.len());
        let is_one = |word: &&str| word.starts_with(OPTION);
        let said = words[..ours].iter().copied().rfind(is_one);
        let init = said.map_or("/init", |word| &word[OPTION.len()..]).to_owned();
        if self.args.mote.is_some() {
            let mut number = 0;
            words.retain(|word| {
                number += 1;
                number > ours || !is_one(word)
            });
        }
        (init, words)
    }

    /// Adds kernel, initramfs and command line.
    fn kernel(&self, verbose: bool, all: &mut Vec<String>) {
        let Some(kernel) = self.args.kernel.first() else { return };
        all.extend(["-kernel".to_owned(), kernel.display().to_string()]);
        if let Some(initrd) = self.args.initrd.first() {
            let ours = self.beside("initrd");
            let initrd = if self.args.mote.is_some() { &ours } else { initrd };
            all.extend(["-initrd".to_owned(), initrd.display().to_string()]);
        }
        let terminal = self.arch.terminal();
        let mut line = format!("console={terminal} panic=-1");
        if !verbose {
            line += " quiet";
        }
        if self.used == Accel::Tcg {
            // Under emulation on a busy machine ticks are late, and Linux would consider its timer
            // broken.
            line += " no_timer_check";
        }
        if self.args.mote.is_some() {
            line += " rdinit=/.mote/init";
        }
        for word in self.init().1 {
            line += " ";
            line += word;
        }
        all.extend(["-append".to_owned(), line]);
    }
}

/// Replaces the PCI variant of a virtio device by the one for virtio-mmio; returns whether it is
/// one.
fn on_mmio(device: &mut String) -> bool {
    let (model, options) = device.split_once(',').unwrap_or((device, ""));
    let model = model.strip_suffix("-pci").filter(|model| model.starts_with('v'));
    let Some(model) = model else { return false };
    // Only PCI devices have a ROM.
    let options = options.trim_end_matches("romfile=").trim_end_matches(',');
    let comma = if options.is_empty() { "" } else { "," };
    *device = format!("{model}-device{comma}{options}");
    true
}

pub(crate) fn write_config(root: &Path, instance: &Instance) -> Result<()> {
    let image = iso::image(&store::share(root, &instance.name), SHARE)?;
    let path = store::directory(root, &instance.name).join("config.iso");
    write_whole(&path, &image, 0o600)
}

/// Returns how host and guest reach each other: by the kernel's vsock if this user may use it, else
/// by a process.
fn vsock(root: &Path, name: &str) -> Result<(Option<PathBuf>, Vsock)> {
    let open = std::fs::File::options().read(true).write(true).open(VSOCK_DEVICE);
    let said = std::env::var_os("MOTE_VSOCK").map(PathBuf::from);
    if said.is_none() && open.is_ok() {
        // The first three are reserved. Two VMs of a machine get the same one once in four billion.
        return Ok((None, Vsock::Cid(number().clamp(3, u32::MAX - 1))));
    }
    let home = std::env::var("HOME").unwrap_or_default() + "/.cargo/bin";
    let program = said.unwrap_or_else(|| VSOCK_PROGRAM.into());
    let program = child::find(&program, &[&home]).with_context(|| {
        format!(
            "host and guest need vsock: this user may not open {VSOCK_DEVICE} (modprobe vhost_vsock; \
             group kvm), and {} is not installed (cargo install --locked {VSOCK_PROGRAM}; \
             Debian 12 needs rustup's Rust for that)",
            program.display()
        )
    })?;
    let socket = store::directory(root, name).join("vsock");
    if socket.as_os_str().as_encoded_bytes().contains(&b',') {
        let (socket, program) = (socket.display(), program.display());
        bail!("{socket}: {program} accepts no path with a comma; choose another --dir");
    }
    Ok((Some(program), Vsock::Uds(socket)))
}
