//! `GET /1.0/metrics`: reads the figures and writes each as soon as it is read; the core's `metrics` has
//! the format.

use std::fmt::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use mote_core::flavour::Flavour;
use mote_core::json::Writer;
use mote_core::netlink::{Reply, Table};
use mote_core::report::metrics::{self, Section, Totals};
use mote_core::report::proc::keyed;
use mote_core::report::proc::stat::{Cpu, Disk};

use crate::first_boot::netlink::Netlink;
use crate::runtime::log;
use crate::workers::report::pipe::Pipe;
use crate::workers::report::{filesystems, lines, processes, state};

/// Writes the document.
///
/// # Errors
/// The output is closed.
pub(crate) fn write(flavour: Flavour, root: &Path, mut out: Pipe) -> Result<Pipe, fmt::Error> {
    let mut json = Writer::new(&mut out);
    json.begin_object();
    let mut totals = Totals { processes: processes::count(root, flavour), ..Totals::default() };
    metrics::open(&mut json, flavour, Section::Cpu);
    lines::each(&root.join("proc/stat"), |line| {
        if let Some(cpu) = Cpu::parse(line) {
            // The line "cpu" is the sum over all processors.
            if cpu.name != b"cpu" {
                metrics::cpu(&mut json, flavour, &cpu);
                totals.cpus += 1;
            }
        } else if let Some(boot) = keyed(line, "btime") {
            totals.boot = boot;
        }
    });
    metrics::close(&mut json, flavour);
    metrics::open(&mut json, flavour, Section::Disk);
    lines::each(&root.join("proc/diskstats"), |line| {
        if let Some(disk) = Disk::parse(line) {
            metrics::disk(&mut json, flavour, &disk);
        }
    });
    metrics::close(&mut json, flavour);
    let oom_kills = lines::find(&root.join("proc/vmstat"), |line| keyed(line, "oom_kill"));
    metrics::memory(&mut json, flavour, &state::memory(root), oom_kills.unwrap_or(0));
    metrics::open(&mut json, flavour, Section::Network);
    if let Err(error) = networks(&mut json, flavour) {
        log::warn(format_args!("cannot list interfaces: {error}"));
    }
    metrics::close(&mut json, flavour);
    totals.now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    metrics::totals(&mut json, flavour, &totals);
    // Last, since a mount may hang.
    metrics::open(&mut json, flavour, Section::Filesystem);
    json.done()?;
    let mut out = filesystems::write(flavour, root, out)?;
    let mut json = Writer::behind(&mut out);
    metrics::close(&mut json, flavour);
    json.end_object();
    json.done()?;
    out.write_char('\n')?;
    Ok(out)
}

fn networks(json: &mut Writer<'_>, flavour: Flavour) -> Result<(), rustix::io::Errno> {
    Netlink::open()?.dump(Table::Links, |reply| {
        if let Reply::Link(link) = reply {
            metrics::network(json, flavour, link);
        }
    })
}
