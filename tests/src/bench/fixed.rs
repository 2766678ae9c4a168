//! Rows that are the same in each round: sizes of the binary, and the smallest VM.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::attempt::attempt;
use super::book::Found;
use crate::column::Column;
use crate::vm::Spec;
use crate::world::{self, World};
use crate::{agent, tool};

/// Least memory of a VM tried, MiB.
const LEAST: u32 = 32;
/// Most memory of a VM tried, MiB.
const MOST: u32 = 256;
/// Granularity of the memory tried, MiB.
const STEP: u32 = 2;
/// Time limit for CONNECTED with little memory.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Path of the agent's program.
fn binary(column: Column) -> PathBuf {
    match column.program() {
        None if column == Column::Before => tool("MOTE_AGENT_BEFORE", "target/mote-agent-before"),
        None => agent(),
        Some("lxd-agent") => tool("MOTE_LXD_AGENT", "target/lxd-agent"),
        Some(_) if column == Column::IncusAgent7 => {
            tool("MOTE_INCUS_AGENT_7", "target/incus-agent-7")
        }
        Some(_) => tool("MOTE_INCUS_AGENT", "target/incus-agent"),
    }
}

/// Sizes of the program: plain and compressed.
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

/// Least memory with which a VM reaches CONNECTED, with an image that has only this agent.
pub(super) fn least(column: Column) -> Found {
    let image = match column.program() {
        None => tool("MOTE_IMAGE", "target/image"),
        Some(_) if column == Column::IncusAgent7 => tool("MOTE_IMAGE_GO7", "target/image-go7"),
        Some(name) => tool("MOTE_IMAGE_ALONE", "target/image-alone").join(name),
    };
    let boots =
        |memory| connects(column, &Spec { image: image.clone(), memory, ..world::spec(column) });
    let least = attempt(|| smallest(LEAST, MOST, STEP, boots));
    let none = || format!("not within {MOST} MiB");
    vec![("least", least.and_then(|least| least.map(f64::from).ok_or_else(none)))]
}

/// Binary search for the smallest value of `low..=high` in steps for which `is_so`; that must then
/// hold for all larger values.
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

/// True if a VM reaches CONNECTED. Returns early if the console shows that it cannot.
fn connects(column: Column, spec: &Spec) -> bool {
    let mut world = World::boot(column, spec, &[]);
    let begun = Instant::now();
    while begun.elapsed() < TIMEOUT {
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
