//! A stored state of an outer VM with a running server. Runs restore it instead of booting, which
//! saves a minute or more in emulation.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::options::Options;
use crate::outer::{self, End, From, Outer};
use crate::report::Line;

/// Its content also decides whether a stored state is valid.
const SOURCE: &str = include_str!("setup.rs");

/// Limit for the first boot, which took five minutes on a busy machine.
const FIRST_BOOT: Duration = Duration::from_secs(1800);

/// Returns where an outer VM starts, and creates the stored state if there is none.
pub fn begin(options: &Options, work: &Path) -> Result<From, String> {
    let spec = &options.spec;
    if spec.kvm {
        return Ok(From::Power); // it boots in seconds
    }
    let mut hash = DefaultHasher::new();
    (SOURCE, outer::command_line(spec)).hash(&mut hash);
    let kept = spec.outer.join(format!("warm-{:016x}.qcow2", hash.finish()));
    let done = kept.with_extension("done");
    if !done.exists() {
        forget(&spec.outer);
        make(options, work, &kept)?;
        fs::write(&done, "").map_err(|error| format!("{}: {error}", done.display()))?;
    }
    Ok(From::Kept(kept))
}

fn forget(directory: &Path) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("warm-")) {
            let _gone = fs::remove_file(path);
        }
    }
}

fn make(options: &Options, work: &Path, kept: &PathBuf) -> Result<(), String> {
    let spec = &options.spec;
    println!("a first boot, until the server is up; it is kept for the next runs");
    let mut create = Command::new("qemu-img");
    create.args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b"]);
    let created = create.arg(spec.outer.join("disk.raw")).arg(kept).status();
    if !created.is_ok_and(|status| status.success()) {
        return Err("qemu-img failed".into());
    }
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let (server, slow) = (options.server.name(), options.slow);
    let start = format!("#!/bin/sh\n./mote-servers check {server} mote {slow}\n");
    let mut outer = Outer::start(spec, work, &start, &[&this], &From::PowerKept(kept.clone()))?;
    let end = outer.hear(options.until.min(Instant::now() + FIRST_BOOT), |line| {
        if let Line::Step(text, at) = line {
            println!("  {at:6.1} s  {text}");
        }
    });
    match end {
        End::Over(why) if why.is_empty() => outer.keep(kept),
        End::Over(why) | End::Lost(why) => Err(format!("the first boot: {why}")),
    }
}
