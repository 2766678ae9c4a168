//! The machine that QEMU emulates: `MOTE_ARCH`, by default x86_64, and for that `MOTE_ACCEL` and `MOTE_CPU`.

/// The servers' too. With `pc` Linux asks its ACPI for each device's interrupts: 0.8 of 2.9 billion instructions of a boot.
pub const PC: &str = "q35";

/// QEMU's program for it.
pub(super) fn program() -> String {
    format!("qemu-system-{}", architecture())
}

fn architecture() -> String {
    std::env::var("MOTE_ARCH").unwrap_or_else(|_| "x86_64".into())
}

/// QEMU's arguments for machine, processor and the two serial ports, whose other ends are these.
pub(super) fn arguments(console: &str, shell: &str) -> Vec<String> {
    let is_pc = architecture() == "x86_64";
    let accel = std::env::var("MOTE_ACCEL").unwrap_or_else(|_| "tcg".into());
    let machine = format!("{},memory-backend=mem", if is_pc { PC } else { "virt" });
    let mut args = vec!["-accel".into(), accel, "-machine".into(), machine];
    // virt's default is a CPU of 32 bits.
    let default = (!is_pc).then(|| "cortex-a72".into());
    if let Some(cpu) = std::env::var("MOTE_CPU").ok().or(default) {
        args.extend(["-cpu".into(), cpu]);
    }
    args.extend(["-chardev".into(), console.into(), "-chardev".into(), shell.into()]);
    for port in ["console", "shell"] {
        // virt has one serial port of its own; these two have the names that they have on a PC.
        let (option, value) = if is_pc {
            ("-serial", format!("chardev:{port}"))
        } else {
            ("-device", format!("pci-serial,chardev={port}"))
        };
        args.extend([option.into(), value]);
    }
    // Behind the serial ports, whose order gives them their names.
    for slot in 0..SLOTS {
        let port = format!("pcie-root-port,id=slot{slot},chassis={}", slot + 1);
        args.extend(["-device".into(), port]);
    }
    args
}

/// How many PCI devices can be plugged in while a VM runs.
const SLOTS: usize = 4;

/// What `-device` takes, for a device that is plugged into a running VM: into a port of its own, as PCI Express has it.
pub(super) fn plugged(device: &str, slot: usize) -> String {
    if device.contains(",bus=") {
        return device.to_owned();
    }
    assert!(slot < SLOTS, "there is no port for {device}");
    format!("{device},bus=slot{slot}")
}
