//! `GET /1.0/metrics`: reads the figures and writes each immediately, in the format of the core's
//! `metrics`. The agent itself does this if nothing can hang or take long.

use std::fmt::{self, Write};
use std::path::Path;

use mote_core::flavour::Flavour;
use mote_core::json::Writer;
use mote_core::report::metrics::{self, Section, Totals};
use mote_core::report::proc::Memory;
use mote_core::report::proc::keyed;
use mote_core::report::proc::stat::{Cpu, Disk, Interface};

use crate::runtime::clock;
use crate::workers::report::{filesystems, lines, state};

/// Maximum number of tasks whose directories in `/proc` the agent itself reads.
const MAX_TASKS: u16 = 1000;
/// Maximum size of a document that the agent itself writes, in bytes; larger ones get a worker.
const MAX_OWN_DOCUMENT: usize = 64 * 1024;

/// Writes the document. Errors: the output is closed.
pub(crate) fn write(flavour: Flavour, root: &Path, out: &mut dyn Write) -> fmt::Result {
    begin(flavour, root, out)?;
    filesystems::write(flavour, root, out)?;
    end(flavour, out)
}

/// Returns the document if making it can neither hang nor take long, because a worker is expensive.
pub(crate) fn without_worker(flavour: Flavour, root: &Path) -> Option<Vec<u8>> {
    if rustix::system::sysinfo().procs > MAX_TASKS {
        return None;
    }
    let local = filesystems::local(flavour, root)?;
    let mut out = Bounded(String::with_capacity(MAX_OWN_DOCUMENT / 8));
    begin(flavour, root, &mut out).ok()?;
    local.write(flavour, root, &mut out).ok()?;
    end(flavour, &mut out).ok()?;
    Some(out.0.into_bytes())
}

struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_OWN_DOCUMENT {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// Writes everything except the mounts.
fn begin(flavour: Flavour, root: &Path, out: &mut dyn Write) -> fmt::Result {
    let mut json = Writer::new(out);
    json.begin_object();
    let mut totals =
        Totals { processes: state::count_processes(root, flavour), ..Totals::default() };
    metrics::open(&mut json, flavour, Section::Cpu);
    lines::each(&root.join("proc/stat"), |line| {
        if let Some(cpu) = Cpu::parse(line) {
            // The line "cpu" is the sum over all CPUs.
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
    let memory = state::meminfo(root);
    metrics::memory(&mut json, flavour, Memory(&memory), oom_kills.unwrap_or(0));
    metrics::open(&mut json, flavour, Section::Network);
    // Read the file, because a netlink dump waits while an interface changes.
    lines::each(&root.join("proc/net/dev"), |line| {
        if let Some(interface) = Interface::parse(line) {
            metrics::network(&mut json, flavour, &interface);
        }
    });
    metrics::close(&mut json, flavour);
    totals.now = clock::wall().0;
    metrics::totals(&mut json, flavour, &totals);
    // Write the mounts last, because one may hang.
    metrics::open(&mut json, flavour, Section::Filesystem);
    json.done()
}

fn end(flavour: Flavour, out: &mut dyn Write) -> fmt::Result {
    let mut json = Writer::continuing(out);
    metrics::close(&mut json, flavour);
    json.end_object();
    json.done()?;
    out.write_char('\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_writes_short_documents_that_cannot_hang() {
        let root = crate::runtime::scratch("metrics-at-once");
        let put = |path: &str, text: &str| crate::runtime::put(&root, path, text);
        let made =
            || without_worker(Flavour::Lxd, &root).map(|text| String::from_utf8(text).unwrap());
        assert_eq!(made(), None);
        put("proc/mounts", "/dev/vda1 / ext4 rw 0 0\n/dev/vdb1 /gone xfs rw 0 0\n");
        put("proc/diskstats", "254 0 vda 1 2 3 4 5 6 7 8\n");
        let text = made().unwrap();
        assert!(text.ends_with("}\n") && text.contains("\"mountpoint\":\"/\""), "{text}");
        assert!(!text.contains("gone"), "{text}");
        put("proc/diskstats", &"254 0 vda 1 2 3 4 5 6 7 8\n".repeat(1000));
        assert_eq!(made(), None);
        put("proc/diskstats", "");
        put("proc/mounts", "/dev/vda1 / ext4 rw 0 0\nshare /mnt 9p rw 0 0\n");
        assert_eq!(made(), None);
        put("proc/mounts", &"/dev/vda1 / ext4 rw 0 0\n".repeat(100));
        assert_eq!(made(), None);
    }
}
