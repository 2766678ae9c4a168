//! The devices of a VM as QEMU options.

use std::path::{Path, PathBuf};

use super::{Machine, Recipe, Writes};
use mote_client::instance::vsock_device::DEVICE;
use mote_client::instance::{CONFIG_DISK, GENERATION, UUID};
use mote_client::{Channel, Flavour, Vsock};

/// Size of QEMU's ring buffer under LXD, and under Incus before 7.0.1, bytes (P§2.1).
const RING: u32 = 16;
/// The same under Incus from 7.0.1 on, where an agent without vsock reports its state through it
/// (P§2.4).
const RING_OF_INCUS: u32 = 16 * 1024;

const READ: &str = "the agent's output: a ring buffer that the host reads by this id";

/// QEMU arguments that belong together, with their reasons.
#[derive(Default)]
pub(super) struct Options(pub(super) Vec<(&'static str, Vec<String>)>);

impl Options {
    fn add(&mut self, why: &'static str, arguments: &[&str]) {
        self.0.push((why, arguments.iter().map(|argument| (*argument).to_owned()).collect()));
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
        options.add(
            "a CPU with all features of this machine or of QEMU; -accel is your choice",
            &["-cpu", "max"],
        );
    }

    fn status_port(&self, options: &mut Options) {
        options.add(
            "a serial bus for the status port (guest: virtio_pci, virtio_console)",
            &["-device", "virtio-serial-pci,id=serial"],
        );
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
                options.add(
                    "QEMU's monitor for mote-host, which accepts only one client: it reads the status port",
                    &["-qmp", &listening(path)],
                );
                (yours(path), ring, read)
            }
            Channel::Serial { path, .. } => (
                yours(&self.beside("qmp")),
                format!("socket,id=qemu_serial-chardev,path={},server=on,wait=off", value(path)),
                "the agent's input and output: a socket to which mote-host connects",
            ),
        };
        options.add(
            "another monitor (QMP) for you: power button (system_powerdown), pause (stop, cont)",
            &["-qmp", &listening(&monitor)],
        );
        options.add(why, &["-chardev", &status]);
        let name = self.instance.flavour.server().port;
        let port = format!(
            "virtserialport,bus=serial.0,chardev=qemu_serial-chardev,name={name},id=qemu_serial"
        );
        options.add("the status port; its name identifies the server", &["-device", &port]);
        if matches!(self.instance.flavour, Flavour::Incus | Flavour::Lxd) {
            let old = Flavour::LxdOld.server().port;
            let dummy = format!("virtserialport,bus=serial.0,name={old},id=legacy");
            options.add(
                "the port's old name, which current servers also create, unused",
                &["-device", &dummy],
            );
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
                    "memory that vhost-device-vsock can read; both sizes are the same",
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
        options.add(
            "the balloon, by which servers change memory (guest: virtio_balloon)",
            &["-device", "virtio-balloon-pci"],
        );
        options.add(
            "random numbers from this machine (guest: virtio_rng)",
            &[
                "-object",
                "rng-random,id=rng,filename=/dev/urandom",
                "-device",
                "virtio-rng-pci,rng=rng",
            ],
        );
        let guid = self.instance.config.get(GENERATION);
        if let Some(guid) = guid.filter(|_| self.machine == Machine::Pc) {
            options.add(
                "the generation id, which changes after a restore (guest: vmgenid)",
                &["-device", &format!("vmgenid,guid={guid}")],
            );
        }
    }

    fn disks(&self, options: &mut Options) {
        let drive = |file: &Path, id: &str, format: &str, more: &str| {
            format!("file={},if=none,id={id},format={format}{more}", value(file))
        };
        let read_only = ",readonly=on";
        options.add(
            "the config share: certificates (guest: virtio_blk, isofs)",
            &[
                "-drive",
                &drive(&self.beside("config.iso"), CONFIG_DISK, "raw", read_only),
                "-device",
                &format!("virtio-blk-pci,drive={CONFIG_DISK}"),
            ],
        );
        if self.disk.is_some() || self.seed.is_some() {
            options.add(
                "SCSI disks (guest: virtio_scsi, sd_mod, sr_mod)",
                &["-device", "virtio-scsi-pci,id=scsi"],
            );
        }
        if let Some((file, format)) = &self.disk {
            let more = match self.writes {
                Writes::Kept => ",discard=on",
                Writes::Forgotten => ",snapshot=on",
            };
            // With a kernel added by -kernel, its index is 0.
            options.add(
                "the root disk",
                &[
                    "-drive",
                    &drive(file, "root", format, more),
                    "-device",
                    "scsi-hd,bus=scsi.0,drive=root,bootindex=1",
                ],
            );
        }
        if self.seed.is_some() {
            options.add(
                "cloud-init's seed (guest: isofs)",
                &[
                    "-drive",
                    &drive(&self.beside("seed.iso"), "seed", "raw", read_only),
                    "-device",
                    "scsi-cd,bus=scsi.0,drive=seed",
                ],
            );
        }
    }
}

fn yours(monitor: &Path) -> PathBuf {
    let mut path = monitor.as_os_str().to_owned();
    path.push(YOURS);
    path.into()
}

/// Suffix to the path of mote-host's own monitor.
pub const YOURS: &str = ".yours";

fn value(path: &Path) -> String {
    escaped(&path.display().to_string())
}

/// Escapes a text: a comma ends a value unless it is doubled.
fn escaped(text: &str) -> String {
    text.replace(',', ",,")
}
