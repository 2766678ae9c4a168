//! The VM of a run: its instance and QEMU's command line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::args::{Arch, HardwareArgs, MachineKind, Network, VmArgs};
use super::child::{self, Helper};
use super::share::{self, Share, Virtiofs};
use crate::accel::{self, Accel};
use mote_client::common::printable::word;
use mote_client::common::random::number;
use mote_client::common::whole_file::write_whole;
use mote_client::instance::vsock_device::{DEVICE, DEVICE_LOCK};
use mote_client::instance::{UUID, identity};
use mote_client::{Channel, Instance, Vsock, complain, store};
use mote_vm::recipe::{self, Recipe, Writes, root_disk};
use mote_vm::{acpi, initramfs, iso, overlay};

/// Default memory, in MiB.
const MEMORY: u32 = 256;
const MEMORY_WITH_DISK: u32 = 512;
/// The configuration key from which cloud-init reads if it detects LXD by the devlxd socket; it
/// then ignores the seed.
const USER_DATA: &str = "cloud-init.user-data";
/// With QEMU's own ACPI tables, a microvm has a timer only under KVM. The RTC would share a
/// device's IRQ.
const MICRO_TCG: &str = "microvm,acpi=off,rtc=off";
/// Volume labels of the disks.
const SHARE: &str = "incus-agent";
const SEED: &str = "cidata";
/// The replacement of the kernel's vsock. Users may install it in `~/.cargo/bin`.
const VSOCK_PROGRAM: &str = "vhost-device-vsock";
const VSOCK_DEVICE: &str = "/dev/vhost-vsock";

/// What to boot, resolved on this machine.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) instance: Instance,
    pub(crate) used: Accel,
    /// Why KVM is not used.
    pub(crate) why_tcg: String,
    pub(crate) qemu: PathBuf,
    /// The program that replaces the kernel's vsock.
    pub(crate) vsock: Option<PathBuf>,
    pub(crate) shares: Vec<Share>,
    /// What happens to writes to the root disk's file.
    pub(crate) writes: Writes,
    arch: Arch,
    kind: MachineKind,
    cpus: u32,
    /// Memory, MiB.
    memory: u32,
    network: Network,
    kernel: Option<Kernel>,
    /// The root disk's file and format.
    disk: Option<(PathBuf, String)>,
    user_data: Option<PathBuf>,
    /// More arguments for QEMU.
    more: Vec<String>,
    directory: PathBuf,
}

#[derive(Debug)]
struct Kernel {
    file: PathBuf,
    initrd: Option<PathBuf>,
    /// An agent to add to the initramfs.
    mote: Option<PathBuf>,
    /// Words to add to the kernel's command line.
    append: Vec<String>,
}

impl Machine {
    /// Resolves the arguments. Of several kernels and initramfs files, uses the first ones.
    pub(crate) fn new(root: &Path, name: &str, args: VmArgs, scratch: &Path) -> Result<Self> {
        let HardwareArgs { memory, cpus, accel, machine: kind, arch, network, .. } = args.hardware;
        let flavour = args.hardware.flavour;
        let arch = arch.unwrap_or_else(Arch::ours);
        let program = format!("qemu-system-{}", word(arch));
        let program = args.hardware.qemu.unwrap_or_else(|| program.into());
        let qemu = child::find(&program, &[]).with_context(|| {
            format!("{} not found (Debian: qemu-system-x86, qemu-system-arm)", program.display())
        })?;
        let (vsock, way) = vsock(root, name)?;
        let (used, why_tcg) = accel::choose(accel, &qemu, &word(arch), scratch);
        let shares = shares(root, args.share, kind)?;
        let devices = shares.iter().enumerate();
        let devices = devices.map(|(number, share)| (Share::name(number), share.device(flavour)));
        let directory = store::directory(root, name);
        let instance = Instance {
            name: name.to_owned(),
            flavour,
            vsock: way,
            channel: Channel::Qmp(directory.join("qmp")),
            config: config(args.user_data.as_deref(), args.config)?,
            devices: devices.collect(),
        };
        let absolute = |path: &PathBuf| std::path::absolute(path);
        let initrd = args.initrd.first().map(absolute).transpose()?;
        let append = args.append.iter().flat_map(|words| words.split(' ')).map(str::to_owned);
        let file = args.kernel.first().map(absolute).transpose()?;
        let kernel =
            file.map(|file| Kernel { file, initrd, mote: args.mote, append: append.collect() });
        let disk = args.disk.as_deref().map(root_disk).transpose()?;
        let usual = if disk.is_some() { MEMORY_WITH_DISK } else { MEMORY };
        Ok(Self {
            instance,
            used,
            why_tcg,
            qemu,
            vsock,
            shares,
            writes: if args.write { Writes::Kept } else { Writes::Forgotten },
            arch,
            kind,
            cpus: cpus.unwrap_or(if used == Accel::Kvm { 2 } else { 1 }),
            memory: memory.unwrap_or(usual),
            network,
            kernel,
            disk,
            user_data: args.user_data,
            more: args.hardware.qemu_arg.into_iter().flat_map(|words| words.0).collect(),
            directory,
        })
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
            helpers.push(Helper {
                program: program.clone(),
                arguments: vec!["--vm".to_owned(), recipe::stand_in(uds, &socket)],
                socket,
                lock: self.beside(DEVICE_LOCK),
                directory: self.directory.clone(),
            });
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
        if self.has_own_acpi() {
            write("acpi", acpi::tables())?;
        }
        if let Some(user_data) = &self.user_data {
            write("seed.iso", self.seed(user_data)?)?;
        }
        if let Some(kernel @ Kernel { initrd: Some(initrd), mote: Some(mote), .. }) = &self.kernel {
            write("initrd", initramfs::with_agent(initrd, mote, kernel.init().0)?)?;
        }
        Ok(())
    }

    /// Returns whether the VM needs ACPI tables that are not QEMU's.
    fn has_own_acpi(&self) -> bool {
        self.kind == MachineKind::Microvm && self.arch == Arch::X86 && self.used == Accel::Tcg
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

    /// Replaces the root disk with an overlay, so that its file is not written.
    pub(crate) fn overlay_disk(&mut self) -> Result<()> {
        let read = self.disk.as_ref().filter(|_| self.writes == Writes::Forgotten);
        let Some((base, format)) = read else { return Ok(()) };
        let overlay = self.beside("root.qcow2");
        overlay::create(&overlay, base, format)?;
        (self.disk, self.writes) = (Some((overlay, "qcow2".to_owned())), Writes::Kept);
        Ok(())
    }

    /// Returns the directory for the guest's writes: next to the disk, or QEMU's directory for
    /// temporary files, which is never /tmp, whatever TMPDIR is.
    pub(crate) fn written_to(&self) -> PathBuf {
        match &self.disk {
            Some((file, _)) if self.writes == Writes::Kept => {
                file.parent().unwrap_or(file).to_owned()
            }
            Some(_) | None => std::env::var_os("TMPDIR")
                .map(PathBuf::from)
                .filter(|path| path.is_absolute() && path != Path::new("/tmp"))
                .unwrap_or_else(|| "/var/tmp".into()),
        }
    }

    pub(crate) fn arguments(
        &self,
        root: &Path,
        console: &Path,
        verbose: bool,
    ) -> Result<Vec<String>> {
        let usual = "-nodefaults -no-user-config -display none -no-reboot";
        let mut all: Vec<String> = usual.split(' ').map(String::from).collect();
        let is_micro = self.kind == MachineKind::Microvm;
        let (machine, kind) = match self.arch {
            Arch::X86 if self.has_own_acpi() => (MICRO_TCG, recipe::Machine::Micro),
            Arch::X86 if is_micro => ("microvm", recipe::Machine::Micro),
            // The servers' machine. With pc, Linux asks ACPI for each device's interrupts, which
            // takes 0.2 s per device under emulation.
            Arch::X86 => ("q35", recipe::Machine::Pc),
            Arch::Aarch64 => ("virt", recipe::Machine::Arm),
            Arch::Riscv64 => ("virt", recipe::Machine::Riscv),
        };
        // The guest's kernel reports a panic through it, if it has the driver.
        let panic = if self.arch == Arch::X86 { "pvpanic" } else { "pvpanic-pci" };
        for (option, value) in [
            ("-machine", format!("{machine},accel={}", word(self.used))),
            ("-smp", self.cpus.to_string()),
            ("-chardev", format!("file,id=console,path={}", recipe::value(console))),
            ("-serial", "chardev:console".to_owned()),
            ("-device", panic.to_owned()),
        ] {
            all.extend([option.to_owned(), value]);
        }
        let share = store::share(root, &self.instance.name);
        let mut recipe = Recipe::of(root, &self.instance, &share);
        recipe.disk.clone_from(&self.disk);
        recipe.writes = self.writes;
        recipe.seed.clone_from(&self.user_data);
        recipe.shared_memory = self.shares.iter().any(|share| share.virtiofs.is_some());
        recipe.machine = kind;
        recipe.memory = self.memory;
        all.extend(recipe.arguments());
        for (number, share) in self.shares.iter().enumerate() {
            all.extend(share.arguments(number, &self.instance, &self.share_socket(number)));
        }
        if self.network == Network::User {
            let nic = ["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile="];
            all.extend(nic.map(String::from));
        }
        if is_micro {
            let devices = all.iter_mut().map(on_mmio).filter(|is_virtio| *is_virtio).count();
            let most = acpi::DEVICES;
            if self.has_own_acpi() && devices > usize::from(most) {
                bail!(
                    "--machine microvm has {most} virtio devices without KVM, not {devices}: use \
                     fewer shares, or no network"
                );
            }
        }
        if let Some(kernel) = &self.kernel {
            self.kernel(kernel, verbose, &mut all);
        }
        all.extend(self.more.iter().cloned());
        Ok(all)
    }

    fn kernel(&self, kernel: &Kernel, verbose: bool, all: &mut Vec<String>) {
        all.extend(["-kernel".to_owned(), kernel.file.display().to_string()]);
        if let Some(initrd) = &kernel.initrd {
            let ours = self.beside("initrd");
            let initrd = if kernel.mote.is_some() { &ours } else { initrd };
            all.extend(["-initrd".to_owned(), initrd.display().to_string()]);
        }
        let terminal = self.arch.terminal();
        let mut line = format!("console={terminal} panic=-1");
        if !verbose {
            line += " quiet";
        }
        if self.used == Accel::Tcg {
            // Under emulation on a busy machine, ticks are late, so Linux would consider its timer
            // broken.
            line += " no_timer_check";
        }
        if self.has_own_acpi() {
            let (file, address) = (self.beside("acpi"), acpi::ADDRESS);
            let loader = format!("loader,file={},addr={address},force-raw=on", file.display());
            all.extend(["-device".to_owned(), loader]);
            line += &format!(" acpi_rsdp={address:#x}");
        }
        if kernel.mote.is_some() {
            line += " rdinit=/.mote/init";
        }
        for word in kernel.init().1 {
            line += " ";
            line += word;
        }
        all.extend(["-append".to_owned(), line]);
    }
}

impl Kernel {
    /// Returns the program that the kernel starts, and the other words of `--append`. With
    /// `--mote`, mote's init starts it instead, and words after `--` are its arguments.
    fn init(&self) -> (&str, Vec<&str>) {
        const OPTION: &str = "rdinit=";
        let mut words: Vec<&str> = self.append.iter().map(String::as_str).collect();
        let ours = words.iter().position(|word| *word == "--").unwrap_or(words.len());
        let said = words[..ours].iter().copied().rfind(|word| word.starts_with(OPTION));
        if self.mote.is_some() {
            let theirs = words.split_off(ours);
            words.retain(|word| !word.starts_with(OPTION));
            words.extend(theirs);
        }
        (said.map_or("/init", |word| &word[OPTION.len()..]), words)
    }
}

fn config(file: Option<&Path>, more: Vec<(String, String)>) -> Result<BTreeMap<String, String>> {
    let mut config = identity();
    if let Some(file) = file {
        let said = || format!("--user-data {}", file.display());
        let text = std::fs::read_to_string(file).with_context(said)?;
        config.insert(USER_DATA.to_owned(), text);
    }
    config.extend(more);
    Ok(config)
}

/// Returns the shares with their servers. Fails if a guest could change this program's files
/// through one of them.
fn shares(root: &Path, mut shares: Vec<Share>, kind: MachineKind) -> Result<Vec<Share>> {
    // On virtio-mmio, a guest gets only the first answer of QEMU 7.2's virtiofs: use 9p or a copy.
    let may_be_virtiofs = !shares.is_empty() && kind == MachineKind::Pci;
    let virtiofsd = may_be_virtiofs.then(share::virtiofsd).flatten();
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
            let said = "as root, and other users can enter it, so setuid files from the guest work here. \
                        Add :ro, close the directory above to others, or run this as another user";
            complain(&format!("the guest writes to {} {said}", share.source.display()));
        }
        share.virtiofs = virtiofsd.as_ref().and_then(|program| Virtiofs::of(program, share));
    }
    Ok(shares)
}

/// Replaces the PCI variant of a virtio device with the one for virtio-mmio; returns whether it is
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
        // The first three are reserved. Two VMs on a machine get the same id once in four billion.
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
