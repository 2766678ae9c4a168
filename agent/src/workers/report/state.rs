//! `GET /1.0/state`: reads the figures; the core's `state` defines the format.

use std::ffi::CStr;
use std::fmt;
use std::mem::MaybeUninit;
use std::path::Path;

use mote_core::flavour::Flavour;
use mote_core::json::Writer;
use mote_core::netlink::{Address, Reply, Table};
use mote_core::report::proc::stat::Cpu;
use mote_core::report::proc::{Memory, full_name, keyed, number, variable};
use mote_core::report::state::{self, State, System};
use rustix::fs::{OFlags, RawDir, readlinkat_raw};
use rustix::io::Errno;

use crate::runtime::{log, read_bounded};
use crate::sys::file;
use crate::system::netlink::Netlink;
use crate::workers::report::lines;

/// Maximum size of `/proc/meminfo`, in bytes; it has about 60 lines. A longer one is ignored.
const MEMINFO: u64 = 64 * 1024;
/// Maximum number of addresses, about 100 KB of JSON.
const ADDRESSES: usize = 4096;

/// Writes the document. Errors: the output is closed.
pub(crate) fn write(flavour: Flavour, root: &Path, out: &mut dyn fmt::Write) -> fmt::Result {
    let uname = rustix::system::uname();
    let host = uname.nodename().to_bytes();
    let mut system = (Vec::new(), Vec::new(), Vec::new());
    if flavour == Flavour::Incus {
        system = read_system(root, host);
    }
    let processes = count_processes(root, flavour);
    let memory = meminfo(root);
    let state = State {
        memory: Memory(&memory),
        memory_peak: peak(root, ["memory.peak", "memory/memory.max_usage_in_bytes"]),
        swap_peak: peak(root, ["memory.swap.peak", ""]),
        cpu: cpu(root),
        processes,
        system: System {
            name: &system.0,
            version: &system.1,
            kernel: uname.release().to_bytes(),
            host,
            full_host: &system.2,
        },
    };
    let mut json = Writer::new(out);
    state::begin(&mut json, flavour, &state);
    if let Err(error) = networks(&mut json) {
        log::warn(format_args!("cannot list interfaces: {error}"));
    }
    state::end(&mut json);
    json.done()
}

/// Returns the text of `/proc/meminfo`; empty if it cannot be read.
pub(crate) fn meminfo(root: &Path) -> Vec<u8> {
    read_bounded(&root.join("proc/meminfo"), MEMINFO).unwrap_or_default()
}

/// Reads a number from the first of these files that exists in the topmost cgroup, else 0. The
/// files of v2 exist only in a container, those of v1 always.
fn peak(root: &Path, files: [&str; 2]) -> u64 {
    let cgroup = root.join("sys/fs/cgroup");
    let read = |file: &&str| lines::find(&cgroup.join(file), number);
    files.iter().filter(|file| !file.is_empty()).find_map(read).unwrap_or(0)
}

/// Reads the used CPU time, in nanoseconds: from cgroup v2, v1, or `/proc/stat`, which the Go
/// agents do not use.
fn cpu(root: &Path) -> Option<u64> {
    let v2 = || {
        let usage = |line: &[u8]| keyed(line, "usage_usec");
        Some(lines::find(&root.join("sys/fs/cgroup/cpu.stat"), usage)?.saturating_mul(1000))
    };
    let v1 = || lines::find(&root.join("sys/fs/cgroup/cpuacct/cpuacct.usage"), number);
    let kernel = || lines::find(&root.join("proc/stat"), |line| Some(Cpu::parse(line)?.busy()));
    v2().or_else(v1).or_else(kernel)
}

/// Returns the system's name and version, and the fully qualified host name. Incus' agent asks the
/// resolver for that, which may wait for an unreachable server.
fn read_system(root: &Path, host: &[u8]) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let release = |name| {
        let read = |file| lines::find(&root.join(file), |line| variable(line, name));
        read("etc/os-release").or_else(|| read("usr/lib/os-release")).unwrap_or_default()
    };
    let full =
        lines::find(&root.join("etc/hosts"), |line| full_name(line, host).map(<[u8]>::to_vec));
    (release("NAME"), release("VERSION_ID"), full.unwrap_or_else(|| host.to_vec()))
}

fn networks(json: &mut Writer<'_>) -> Result<(), Errno> {
    let mut netlink = Netlink::open()?;
    let mut addresses: Vec<Address> = Vec::new();
    netlink.dump(Table::Addresses, |reply| {
        if let Reply::Address(address) = reply
            && addresses.len() < ADDRESSES
        {
            addresses.push(*address);
        }
    })?;
    netlink.dump(Table::Links, |reply| {
        if let Reply::Link(link) = reply {
            state::network(json, link, &addresses);
        }
    })
}

/// Size of the buffer for directory entries, in bytes.
const PIECE: usize = 16 * 1024;

/// Counts processes as this server's agent does (P§4.6): for LXD those that run a program, for
/// Incus all, including kernel threads and zombies. Returns 0 if `/proc` cannot be read.
///
/// LXD's agent skips processes with an empty command line. Those have no program either, and
/// reading the `exe` link takes one call instead of three. Reading `cmdline` would also hang for a
/// process that hangs in a dead file system.
pub(crate) fn count_processes(root: &Path, flavour: Flavour) -> u64 {
    let Ok(directory) = file::open(&root.join("proc"), OFlags::DIRECTORY) else { return 0 };
    // Allocate it, because used pages of the stack stay in memory.
    let mut space = vec![MaybeUninit::uninit(); PIECE];
    let mut entries = RawDir::new(&directory, &mut space);
    let mut count = 0;
    while let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name().to_bytes();
        if !name.iter().all(u8::is_ascii_digit) {
            continue;
        }
        count += u64::from(match flavour {
            Flavour::Incus => true,
            Flavour::Lxd | Flavour::LxdOld => {
                let path = [name, b"/exe\0"].concat();
                let Ok(path) = CStr::from_bytes_with_nul(&path) else { continue };
                let mut letter = [MaybeUninit::uninit(); 1];
                let link = readlinkat_raw(&directory, path, letter.as_mut_slice());
                !matches!(link, Err(Errno::NOENT | Errno::SRCH))
            }
        });
    }
    count
}
