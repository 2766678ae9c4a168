//! The emulated machine: `MOTE_ARCH`, by default x86_64, and for x86_64 also `MOTE_ACCEL` and
//! `MOTE_CPU`.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The servers' machine type. With `pc`, Linux asks ACPI for each device's interrupts, 0.8 of 2.9
/// billion instructions of a boot.
pub const PC: &str = "q35";
/// The third serial port, on machines that need it.
const BELL: &str = "bell";
const PC_ARCHITECTURE: &str = "x86_64";

#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent properties")]
struct Machine {
    architecture: &'static str,
    machine: &'static str,
    cpu: Option<&'static str>,
    /// Number of built-in serial ports with the same names as on a PC. The others are PCI devices.
    serial_ports: usize,
    /// Whether the kernel detects a hot-plug: Debian's for riscv64 is built without
    /// `CONFIG_HOTPLUG_PCI`, so [`tell`] notifies the image's init instead.
    hot_plug: bool,
    /// Whether QEMU reports a power-off of the guest: its riscv64 of version 7.2 just ends.
    power_off: bool,
    smbios: bool,
    /// Minimum memory for the tests' image, MiB.
    little: u32,
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

fn emulated() -> Machine {
    let wanted = std::env::var("MOTE_ARCH").unwrap_or_else(|_| PC_ARCHITECTURE.into());
    let found = MACHINES.into_iter().find(|machine| machine.architecture == wanted);
    found.unwrap_or_else(|| panic!("no machine is known for MOTE_ARCH={wanted}"))
}

pub fn is_pc() -> bool {
    emulated().architecture == PC_ARCHITECTURE
}

/// Returns whether its kernel supports hot-unplug.
pub fn lets_go() -> bool {
    emulated().hot_plug
}

pub fn tells_off() -> bool {
    emulated().power_off
}

pub fn has_smbios() -> bool {
    emulated().smbios
}

pub fn little_memory() -> u32 {
    emulated().little
}

pub(super) fn program() -> String {
    format!("qemu-system-{}", emulated().architecture)
}

/// Returns QEMU's arguments for machine, CPU and the two serial ports with these backends. Files
/// are in this directory.
pub(super) fn arguments(directory: &Path, console: &str, shell: &str) -> Vec<String> {
    let Machine { machine, cpu, serial_ports, .. } = emulated();
    let accel = std::env::var("MOTE_ACCEL").unwrap_or_else(|_| "tcg".into());
    let machine = format!("{machine},memory-backend=mem");
    let mut args = vec!["-accel".into(), accel, "-machine".into(), machine];
    if let Some(cpu) = std::env::var("MOTE_CPU").ok().or(cpu.map(String::from)) {
        args.extend(["-cpu".into(), cpu]);
    }
    args.extend(["-chardev".into(), console.into(), "-chardev".into(), shell.into()]);
    let mut ports = vec!["console", "shell"];
    if !lets_go() {
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
    // After the serial ports, whose order decides their names.
    for slot in 0..SLOTS {
        let port = format!("pcie-root-port,id=slot{slot},chassis={}", slot + 1);
        // Without hot-plug support the guest never switches the slot's power on.
        let power = if lets_go() { "" } else { ",power_controller_present=off" };
        args.extend(["-device".into(), port + power]);
    }
    args
}

pub(super) fn words() -> &'static str {
    if lets_go() { "" } else { " mote.rescan=yes" }
}

/// Notifies the guest of a hot-plugged device if its kernel does not detect it.
pub(super) fn tell(directory: &Path) {
    if !lets_go() {
        let bell = UnixStream::connect(directory.join(BELL)).expect("the third serial port");
        (&bell).write_all(b"\n").expect("a line");
    }
}

/// Number of hot-pluggable PCI devices.
const SLOTS: usize = 4;

/// Returns the argument of `-device` for a hot-plugged device: each needs its own PCI Express port.
pub(super) fn plugged(device: &str, slot: usize) -> String {
    if device.contains(",bus=") {
        return device.to_owned();
    }
    assert!(slot < SLOTS, "there is no port for {device}");
    format!("{device},bus=slot{slot}")
}
