//! What does not change from round to round: bytes, and the smallest VM.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::attempt;
use super::book::Found;
use crate::column::Column;
use crate::vm::Spec;
use crate::world::{self, World};
use crate::{agent, tool};

/// The VM's memory is looked for between these, MiB.
const LEAST: u32 = 32;
const MOST: u32 = 256;
/// And in such steps.
const STEP: u32 = 2;
/// For CONNECTED with little memory, where it gets there at all.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program itself.
fn binary(column: Column) -> PathBuf {
    match column.program() {
        None => agent(),
        Some("lxd-agent") => tool("MOTE_LXD_AGENT", "target/lxd-agent"),
        Some(_) => tool("MOTE_INCUS_AGENT", "target/incus-agent"),
    }
}

/// Its bytes, as they are and packed.
pub(super) fn bytes(column: Column) -> Found {
    let file = binary(column);
    let plain = std::fs::metadata(&file).map_err(|error| error.to_string());
    vec![
        ("bytes", plain.and_then(|file| count(usize::try_from(file.len()).ok()))),
        ("xz", packed(&file, "xz", &["-9e", "-c"])),
        ("zstd", packed(&file, "zstd", &["-19", "-q", "-c"])),
    ]
}

fn packed(file: &Path, program: &str, args: &[&str]) -> Result<f64, String> {
    let mut command = Command::new(program);
    let output = command.args(args).arg(file).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    count(Some(output.stdout.len()))
}

fn count(bytes: Option<usize>) -> Result<f64, String> {
    bytes.and_then(|bytes| u32::try_from(bytes).ok()).map(f64::from).ok_or("too large".into())
}

/// The smallest memory with which the VM gets to CONNECTED, with an image of just this agent.
pub(super) fn least(column: Column) -> Found {
    let image = match column.program() {
        None => tool("MOTE_IMAGE", "target/image"),
        Some(name) => tool("MOTE_IMAGE_ALONE", "target/image-alone").join(name),
    };
    let boots =
        |memory| connects(column, &Spec { image: image.clone(), memory, ..world::spec(column) });
    let least = attempt(|| smallest(LEAST, MOST, STEP, boots));
    let none = || format!("not within {MOST} MiB");
    vec![("least", least.and_then(|least| least.map(f64::from).ok_or_else(none)))]
}

/// The smallest of `low..=high` in steps for which it is so, if what is so stays so for larger ones.
fn smallest(low: u32, high: u32, step: u32, mut is_so: impl FnMut(u32) -> bool) -> Option<u32> {
    let (mut from, mut to) = (0, (high - low) / step);
    if !is_so(low + to * step) {
        return None;
    }
    while from < to {
        let middle = u32::midpoint(from, to);
        if is_so(low + middle * step) { to = middle } else { from = middle + 1 }
    }
    Some(low + to * step)
}

/// Whether a VM gets to CONNECTED. Ends as soon as it cannot any more.
fn connects(column: Column, spec: &Spec) -> bool {
    let mut world = World::boot(column, spec, &[]);
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let console = world.vm.console();
        let lost = ["Out of memory", "oom-kill", "Kernel panic", "System halted"];
        if world.vm.has_ended() || lost.iter().any(|words| console.contains(words)) {
            return false;
        }
        if world.host.is_connected() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_is_found_in_few_tries() {
        for wanted in (32..=256).step_by(2) {
            let mut tries = 0;
            let found = smallest(32, 256, 2, |memory| {
                tries += 1;
                memory >= wanted
            });
            assert_eq!(found, Some(wanted));
            assert!(tries <= 8, "{tries}");
        }
        assert_eq!(smallest(32, 256, 2, |_| false), None);
        assert_eq!(smallest(32, 32, 2, |_| true), Some(32));
    }
}
