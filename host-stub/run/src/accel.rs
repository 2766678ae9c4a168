//! Checks whether KVM is usable. That the device can be opened proves little: on some machines QEMU
//! aborts with it, on others KVM emulates each instruction, and a kernel takes an hour to boot. So
//! the same QEMU first runs a VM that counts to four million, with a time limit.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;

use super::child::{self, Kept};

/// The accelerator that the user asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Accel {
    /// KVM if a VM runs with it, else TCG
    #[default]
    Auto,
    /// Virtualization by the processor
    Kvm,
    /// Emulation: works everywhere, about ten times slower
    Tcg,
}

const LIMIT: Duration = Duration::from_secs(2);
const KVM: &str = "/dev/kvm";
/// The value that the probe's VM writes to QEMU's exit device, and QEMU's exit code for it.
const TOLD: u8 = 0x10;
const CODE: i32 = (TOLD as i32) << 1 | 1;

/// Chooses KVM or TCG. Also returns the reason if KVM was wanted and is not used.
pub(crate) fn choose(asked: Accel, qemu: &Path, arch: &str, scratch: &Path) -> (Accel, String) {
    let because = |why: &str| (Accel::Tcg, why.to_owned());
    if asked != Accel::Auto {
        return (asked, String::new());
    }
    if arch != std::env::consts::ARCH {
        return because("the VM's architecture differs from this machine's");
    }
    if arch != "x86_64" {
        return because("KVM is probed only on x86_64: --accel kvm uses it without a probe");
    }
    let mode = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK;
    if let Err(error) = rustix::fs::access(KVM, mode) {
        let why = std::io::Error::from(error).kind();
        return because(&format!("{KVM}: {why}"));
    }
    match runs(qemu, scratch) {
        Ok(None) => (Accel::Kvm, String::new()),
        Ok(Some(why)) => because(&why),
        Err(error) => because(&format!("{KVM} could not be probed: {error:#}")),
    }
}

fn runs(qemu: &Path, scratch: &Path) -> Result<Option<String>> {
    let firmware = scratch.join("probe");
    std::fs::File::create(&firmware)?.write_all(&self::firmware())?;
    let mut command = child::command(qemu);
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-m", "1M"]);
    command.args(["-machine", "pc,accel=kvm", "-cpu", "max", "-device", "isa-debug-exit"]);
    command.arg("-bios").arg(&firmware);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let ended = Kept::start(&mut command)?.ends_within(LIMIT);
    std::fs::remove_file(&firmware)?;
    Ok(match ended.map(|status| status.code()) {
        Some(Some(CODE)) => None,
        Some(_) => Some(format!("{KVM} exists, but QEMU fails with it")),
        None => Some(format!("{KVM} exists, but a VM is slower with it than without")),
    })
}

/// Returns 64 KiB that end at the top of the first MiB. The processor starts 16 bytes below the
/// end, in 16-bit mode.
fn firmware() -> Vec<u8> {
    const SIZE: usize = 64 * 1024;
    let code = [
        &[0x66, 0xb9, 0x00, 0x00, 0x40, 0x00][..], // mov ecx, 0x400000
        &[0x66, 0x49],                             // dec ecx
        &[0x75, 0xfc],                             // jnz to the dec
        &[0xba, 0x01, 0x05],                       // mov dx, 0x501
        &[0xb0, TOLD],                             // mov al, TOLD
        &[0xee],                                   // out dx, al
        &[0xf4],                                   // hlt
        &[0xeb, 0xfd],                             // jmp to the hlt
    ];
    let code = code.concat();
    let mut bytes = vec![0xf4; SIZE - 16 - code.len()];
    bytes.extend(code);
    bytes.extend([0xeb, 0xeb]); // jmp to the beginning of the code
    bytes.resize(SIZE, 0xf4);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_the_firmware_to_the_reset_address() {
        let firmware = firmware();
        assert_eq!(firmware.len(), 65_536);
        assert_eq!(firmware[65_501..65_507], [0x66, 0xb9, 0, 0, 0x40, 0]);
        // The jump at the reset address goes back 21 bytes from its end.
        assert_eq!(firmware[65_520..65_522], [0xeb, 0_u8.wrapping_sub(21)]);
    }
}
