//! The devices of a VM as QEMU options.

use std::path::{Path, PathBuf};

use super::{Machine, Recipe, Writes};
use mote_client::instance::vsock_device::DEVICE;
use mote_client::instance::{CONFIG_DISK, GENERATION, UUID};
use mote_client::{Channel, Flavour, Vsock};

/// Size of QEMU's ring buffer under LXD, and under Incus before 7.0.1, in bytes (P§2.1).
const RING: u32 = 16;
/// The ring buffer's size under Incus since 7.0.1, where an agent without vsock reports its state
/// through it (P§2.4).
const RING_OF_INCUS: u32 = 16 * 1024;

const READ: &str = "the agent's output: a ring buffer that the host reads by this id";

/// QEMU arguments that belong together, with their reasons.
#[derive(Default)]
pub(super) struct Options(pub(super) Vec<(&'static str, Vec<String>)>);

impl Options {
    fn add(&mut self, why: &'static str, arguments: &[&str]) {
        self.0.push((why, arguments.iter().map(|argument| (*argument).to_owned()).collect()));
    }

    /// Adds a device with a file.
    fn add_drive(&mut self, why: &'static str, file: &Path, settings: &str, device: &str) {
        let drive = format!("file={},if=none,{settings}", value(file));
        self.add(why, &["-drive", &drive, "-device", device]);
    }
}

impl Recipe<'_> {
    pub(super) fn options(&self) -> Options {
        let mut options = Options::default();
        self.identity(&mut options);
        self.status_port(&mut options);
        self.vsock(&mut options);
        self.memory_and_chance(&mut options);
        self.disks(&mut options);
        options
    }

    fn identity(&self, options: &mut Options) {
        let config = |key: &str| self.instance.config.get(key).map(String::as_str);
        if let Some(uuid) = config(UUID) {
            let why = "its name, and its UUID as the system UUID (SMBIOS type 1)";
            options.add(why, &["-name", &self.instance.name, "-uuid", uuid]);
        }
        if self.machine == Machine::Riscv {
            return;
        }
        if self.machine != Machine::Micro {
            options.add(
                "the board's name (SMBIOS type 2) as the server sets it; cloud-init identifies LXD by it",
                &["-smbios", &format!("type=2,{}", self.instance.flavour.server().board)],
            );
            for text in self.instance.smbios11() {
                let text = format!("type=11,value={}", escaped(&text));
                options.add("from its configuration (SMBIOS type 11)", &["-smbios", &text]);
            }
        }
        let why = "a CPU with all features of this machine or of QEMU; -accel is your choice";
        options.add(why, &["-cpu", "max"]);
    }

    fn status_port(&self, options: &mut Options) {
        let why = "a serial bus for the status port (guest: virtio_pci, virtio_console)";
        options.add(why, &["-device", "virtio-serial-pci,id=serial"]);
        let ring = |size| format!("ringbuf,id=qemu_serial-chardev,size={size}");
        let (ring, read) = match self.instance.flavour {
            Flavour::Incus => (ring(RING_OF_INCUS), READ),
            Flavour::Lxd | Flavour::LxdOld => (ring(RING), READ),
            Flavour::LxdMicro => {
                ("null,id=qemu_serial-chardev".into(), "the agent's output, which is discarded")
            }
        };
        let listening = |path: &Path| format!("unix:{},server=on,wait=off", value(path));
        let (monitor, status, why) = match &self.instance.channel {
            Channel::Qmp(path) => {
                let why = "QEMU's monitor for mote-host, which accepts only one client: it reads the \
                           status port";
                options.add(why, &["-qmp", &listening(path)]);
                (yours(path), ring, read)
            }
            Channel::Serial { path, .. } => (
                yours(&self.beside("qmp")),
                format!("socket,id=qemu_serial-chardev,path={},server=on,wait=off", value(path)),
                "the agent's input and output: a socket to which mote-host connects",
            ),
        };
        let other =
            "another monitor (QMP) for you: power button (system_powerdown), pause (stop, cont)";
        options.add(other, &["-qmp", &listening(&monitor)]);
        options.add(why, &["-chardev", &status]);
        let name = self.instance.flavour.server().port;
        let port = format!(
            "virtserialport,bus=serial.0,chardev=qemu_serial-chardev,name={name},id=qemu_serial"
        );
        options.add("the status port; its name identifies the server", &["-device", &port]);
        if matches!(self.instance.flavour, Flavour::Incus | Flavour::Lxd) {
            let old = Flavour::LxdOld.server().port;
            let dummy = format!("virtserialport,bus=serial.0,name={old},id=legacy");
            let why = "the port's old name, which current servers also create but do not use";
            options.add(why, &["-device", &dummy]);
        }
    }

    fn vsock(&self, options: &mut Options) {
        let memory = format!("{}M", self.memory);
        let backend = format!("memory-backend-memfd,id=mem,size={memory},share=on");
        let why = "vsock, over which host and agent call each other (guest: \
                   vmw_vsock_virtio_transport)";
        match &self.instance.vsock {
            Vsock::Uds(_) => {
                options.add(
                    "memory that vhost-device-vsock can read; both sizes must be equal",
                    &["-m", &memory, "-object", &backend, "-machine", "memory-backend=mem"],
                );
                let socket = format!("socket,id=vsock,path={}", value(&self.beside(DEVICE)));
                let device = "vhost-user-vsock-pci,chardev=vsock";
                options.add(why, &["-chardev", &socket, "-device", device]);
            }
            Vsock::Cid(cid) => {
                options.add("memory", &["-m", &memory]);
                if self.shared_memory {
                    options.add(
                        "memory that other processes can read",
                        &["-object", &backend, "-machine", "memory-backend=mem"],
                    );
                }
                options.add(why, &["-device", &format!("vhost-vsock-pci,guest-cid={cid}")]);
            }
            // The agent runs on this machine, without a device.
            Vsock::Plain(_) => options.add("memory", &["-m", &memory]),
        }
    }

    fn memory_and_chance(&self, options: &mut Options) {
        let why = "the balloon, with which servers change memory (guest: virtio_balloon)";
        options.add(why, &["-device", "virtio-balloon-pci"]);
        let (source, device) =
            ("rng-random,id=rng,filename=/dev/urandom", "virtio-rng-pci,rng=rng");
        let why = "random numbers from this machine (guest: virtio_rng)";
        options.add(why, &["-object", source, "-device", device]);
        let guid = self.instance.config.get(GENERATION);
        if let Some(guid) = guid.filter(|_| self.machine == Machine::Pc) {
            let why = "the generation id, which changes after a restore (guest: vmgenid)";
            options.add(why, &["-device", &format!("vmgenid,guid={guid}")]);
        }
    }

    fn disks(&self, options: &mut Options) {
        options.add_drive(
            "the config share: certificates (guest: virtio_blk, isofs)",
            &self.beside("config.iso"),
            &format!("id={CONFIG_DISK},format=raw,readonly=on"),
            &format!("virtio-blk-pci,drive={CONFIG_DISK}"),
        );
        if self.disk.is_some() || self.seed.is_some() {
            let why = "SCSI disks (guest: virtio_scsi, sd_mod, sr_mod)";
            options.add(why, &["-device", "virtio-scsi-pci,id=scsi"]);
        }
        if let Some((file, format)) = &self.disk {
            let writes = match self.writes {
                Writes::Kept => "discard",
                Writes::Forgotten => "snapshot",
            };
            let settings = format!("id=root,format={format},{writes}=on");
            // With a kernel added by -kernel, its index is 0.
            let device = "scsi-hd,bus=scsi.0,drive=root,bootindex=1";
            options.add_drive("the root disk", file, &settings, device);
        }
        if self.seed.is_some() {
            let (file, settings) = (self.beside("seed.iso"), "id=seed,format=raw,readonly=on");
            let device = "scsi-cd,bus=scsi.0,drive=seed";
            options.add_drive("cloud-init's seed (guest: isofs)", &file, settings, device);
        }
    }
}

fn yours(monitor: &Path) -> PathBuf {
    let mut path = monitor.as_os_str().to_owned();
    path.push(YOURS);
    path.into()
}

/// Suffix that turns the path of mote-host's own monitor into the user's.
pub const YOURS: &str = ".yours";

/// Returns a path as a value of an option.
pub fn value(path: &Path) -> String {
    escaped(&path.display().to_string())
}

/// Escapes a text: a comma ends a value unless it is doubled.
fn escaped(text: &str) -> String {
    text.replace(',', ",,")
}
