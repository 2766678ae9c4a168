//! The emulated machine: `MOTE_ARCH`, and for x86_64, the default, `MOTE_ACCEL` and `MOTE_CPU`.

use crate::prelude::*;
use crate::qmp;

/// The servers' machine type. With `pc`, Linux asks ACPI for each device's interrupts, 0.8 of 2.9
/// billion instructions of a boot.
pub const PC: &str = "q35";
/// The third serial port, on machines that need it.
const BELL: &str = "bell";
const PC_ARCHITECTURE: &str = "x86_64";

#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent properties")]
pub struct Machine {
    architecture: &'static str,
    machine: &'static str,
    cpu: Option<&'static str>,
    /// Number of built-in serial ports with the same names as on a PC. The others are PCI devices.
    serial_ports: usize,
    /// Whether the kernel detects a hot-plug and supports a hot-unplug. Debian's kernel for riscv64
    /// lacks `CONFIG_HOTPLUG_PCI`, so [`tell`] notifies the image's init instead.
    pub hot_plug: bool,
    /// Whether QEMU reports a power-off of the guest: its riscv64 of version 7.2 just ends.
    pub power_off: bool,
    pub smbios: bool,
    /// Memory in which it must boot, MiB.
    pub little: u32,
}

const PC_MACHINE: Machine = Machine {
    architecture: PC_ARCHITECTURE,
    machine: PC,
    cpu: None,
    serial_ports: 2,
    hot_plug: true,
    power_off: true,
    smbios: true,
    little: 96,
};

const MACHINES: [Machine; 3] = [
    PC_MACHINE,
    Machine {
        architecture: "aarch64",
        machine: "virt",
        // The default CPU is a 32-bit one.
        cpu: Some("cortex-a72"),
        // The built-in port is a PL011, which has a different name.
        serial_ports: 0,
        ..PC_MACHINE
    },
    Machine {
        architecture: "riscv64",
        machine: "virt",
        serial_ports: 1,
        hot_plug: false,
        power_off: false,
        smbios: false,
        // Debian has no smaller kernel for VMs: this one has 31 MB, and large modules.
        little: 128,
        ..PC_MACHINE
    },
];

pub fn machine() -> Machine {
    let wanted = std::env::var("MOTE_ARCH").unwrap_or_else(|_| PC_ARCHITECTURE.into());
    let found = MACHINES.into_iter().find(|machine| machine.architecture == wanted);
    found.unwrap_or_else(|| panic!("no machine is known for MOTE_ARCH={wanted}"))
}

pub fn is_pc() -> bool {
    machine().architecture == PC_ARCHITECTURE
}

pub(super) fn program() -> String {
    format!("qemu-system-{}", machine().architecture)
}

/// Returns QEMU's arguments for machine, CPU and the two serial ports with these backends. Files
/// are in this directory.
pub(super) fn arguments(directory: &Path, console: &str, shell: &str) -> Vec<String> {
    let Machine { machine: name, cpu, serial_ports, .. } = machine();
    let accel = std::env::var("MOTE_ACCEL").unwrap_or_else(|_| "tcg".into());
    let name = format!("{name},memory-backend=mem");
    let mut args = vec!["-accel".into(), accel, "-machine".into(), name];
    if let Some(cpu) = std::env::var("MOTE_CPU").ok().or(cpu.map(String::from)) {
        args.extend(["-cpu".into(), cpu]);
    }
    args.extend(["-chardev".into(), console.into(), "-chardev".into(), shell.into()]);
    let mut ports = vec!["console", "shell"];
    if !machine().hot_plug {
        let bell = directory.join(BELL);
        let bell = format!("socket,id={BELL},path={},server=on,wait=off", bell.display());
        args.extend(["-chardev".into(), bell]);
        ports.push(BELL);
    }
    for (number, port) in ports.into_iter().enumerate() {
        let (option, value) = if number < serial_ports {
            ("-serial", format!("chardev:{port}"))
        } else {
            ("-device", format!("pci-serial,chardev={port}"))
        };
        args.extend([option.into(), value]);
    }
    // Hot-plug slots come after the serial ports, whose order decides their names.
    for slot in 0..SLOTS {
        let port = format!("pcie-root-port,id=slot{slot},chassis={}", slot + 1);
        // Without hot-plug support the guest never switches the slot's power on.
        let power = if machine().hot_plug { "" } else { ",power_controller_present=off" };
        args.extend(["-device".into(), port + power]);
    }
    args
}

pub(super) fn words() -> &'static str {
    if machine().hot_plug { "" } else { " mote.rescan=yes" }
}

/// Notifies the guest of a hot-plugged device if its kernel does not detect it.
pub(super) fn tell(directory: &Path) {
    if !machine().hot_plug {
        let bell = UnixStream::connect(directory.join(BELL)).expect("the third serial port");
        (&bell).write_all(b"\n").expect("a line");
    }
}

const SLOTS: usize = 4;

/// Returns the argument of `-device` for a hot-plugged device: each needs its own PCI Express port.
pub(super) fn plugged(device: &str, slot: usize) -> String {
    if device.contains(",bus=") {
        return device.to_owned();
    }
    assert!(slot < SLOTS, "there is no port for {device}");
    format!("{device},bus=slot{slot}")
}

impl Vm {
    /// Hot-plugs a device, given as for `-device`, whose backend exists.
    pub fn attach(&self, device: &str) {
        self.add(&plugged(device, self.slot()));
    }

    fn add(&self, device: &str) {
        let (driver, properties) = device.split_once(',').expect("a device has properties");
        let mut arguments = json!({"driver": driver});
        for property in properties.split(',') {
            let (name, value) = property.split_once('=').expect("a name and a value");
            arguments[name] = value.into();
        }
        self.order("device_add", &arguments);
    }

    fn slot(&self) -> usize {
        self.plugged.replace(self.plugged.get() + 1)
    }

    pub fn plug_late(&mut self, what: Late) {
        // A status port needs the bus of its device.
        let slot = self.slot();
        let late = self.late.iter().filter(|(late, _)| *late == what);
        let devices: Vec<_> = late.flat_map(|(_, devices)| devices).collect();
        assert!(!devices.is_empty(), "{what:?} already exists");
        devices.into_iter().for_each(|device| self.add(&plugged(device, slot)));
    }

    /// Hot-plugs the CPU with this number, for which `-smp` leaves room, as `limits.cpu` does.
    pub fn add_cpu(&self, number: u32) {
        let model = std::env::var("MOTE_CPU").unwrap_or_else(|_| "qemu64".into());
        let place = json!({"driver": format!("{model}-x86_64-cpu"), "id": format!("cpu{number}"),
            "socket-id": 0, "core-id": number, "thread-id": 0});
        self.order("device_add", &place);
    }

    /// Hot-plugs memory, for which `-m` leaves room, as `limits.memory` does.
    pub fn add_memory(&self, mib: u64) {
        let backend = json!({"qom-type": "memory-backend-memfd", "id": "more", "size": mib << 20,
            "share": true});
        self.order("object-add", &backend);
        self.add("pc-dimm,id=dimm,memdev=more");
    }

    /// Calls `work` while QEMU is stopped. The disks' files then contain all writes that the guest
    /// knows to be complete.
    pub fn standing<T>(&self, work: impl FnOnce() -> T) -> T {
        // Use signals: at some QMP `cont`, vhost-device-vsock 0.3.0 silently ends the guest's
        // thread.
        let qemu = self.qemu.0.id();
        kill(Signal::STOP, qemu);
        until("a standstill", patient(Duration::from_secs(5)), || {
            let stat = fs::read_to_string(format!("/proc/{qemu}/stat")).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T"))
        });
        let done = work();
        kill(Signal::CONT, qemu);
        done
    }

    /// Resizes this drive's disk, as a new volume size does.
    pub fn resize(&self, drive: &str, bytes: u64) {
        self.order("block_resize", &json!({"device": drive, "size": bytes}));
    }

    pub fn pause(&self) {
        self.order("stop", &json!({}));
    }

    pub fn go_on(&self) {
        self.order("cont", &json!({}));
    }

    /// Requests a hot-unplug, which the guest must confirm.
    pub fn unplug(&self, device: &str) {
        self.order("device_del", &json!({"id": device}));
        let there = json!({"path": format!("/machine/peripheral/{device}")});
        wait("its end", patient(Duration::from_secs(20)), || {
            self.ask("qom-list", &there).get("error").map(|_| ())
        });
    }

    /// Stops the VM and writes its state to a file for `-incoming`, as a stateful stop does. QEMU
    /// cannot do this with a vhost-user-vsock device.
    pub fn save(&self, file: &Path) {
        self.order("migrate", &json!({"uri": format!("exec:cat >{}", file.display())}));
        until("its state", patient(Duration::from_secs(60)), || {
            let told = self.ask("query-migrate", &json!({}));
            assert_ne!(told["return"]["status"], "failed", "{told}");
            told["return"]["status"] == "completed"
        });
    }

    pub fn power_button(&self) {
        self.order("system_powerdown", &json!({}));
    }

    pub fn ctrl_alt_del(&self) {
        let keys = ["ctrl", "alt", "delete"].map(|key| json!({"type": "qcode", "data": key}));
        self.order("send-key", &json!({"keys": keys}));
    }

    pub(super) fn order(&self, command: &str, arguments: &Value) {
        let answer = self.ask(command, arguments);
        assert!(answer.get("return").is_some(), "{command} {arguments}: {answer}");
        if command == "device_add" {
            tell(&self.directory);
        }
    }

    fn ask(&self, command: &str, arguments: &Value) -> Value {
        let hot = self.directory.join("hot");
        // QEMU may have just started.
        let (hot, _) = wait("the second monitor", patient(Duration::from_secs(10)), || {
            UnixStream::connect(&hot).ok()
        });
        hot.set_read_timeout(Some(patient(Duration::from_secs(20)))).expect("a timeout");
        qmp(&hot, command, arguments).expect("the second monitor")
    }
}
