//! Size and free space of each mount. statfs(2) on a dead share (9p, NFS, FUSE) does not return, so
//! a child process calls it, and the report omits mounts that do not answer in time. The Go agents
//! lose the whole report.
//!
//! Mounts that hang are stored between reports. A process in statfs(2) may ignore SIGKILL, if a FUSE
//! server has read the request and never answers. A host that queries every 15 s would add such a
//! process each time, so reports omit the mount as long as a process hangs on it.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mote_core::flavour::Flavour;
use mote_core::json::Writer;
use mote_core::report::metrics::{self, Filesystems};
use mote_core::report::proc::mounts::{Mount, Space};
use mote_core::report::proc::number;
use rustix::process::{Pid, test_kill_process};
use rustix::stdio::stdin;

use crate::runtime::{log, run_dir, write_small};
use crate::sys::{Fork, file::statfs, reap, since_boot};
use crate::workers::report::lines::{self, Lines};

/// Time after which the next mount is queried in parallel.
const HANGS: Duration = Duration::from_millis(60);
/// Maximum number of mounts that are queried at once. If they all hang, the report omits others
/// that may hang.
const MAX_WAITING: usize = 16;
/// Time limit for all mounts; the agent waits 2.5 s for the whole report.
const ALL_MOUNTS_TIMEOUT: Duration = Duration::from_millis(1500);
/// Last wait for the mounts that have not answered.
const LAST_WAIT: Duration = Duration::from_millis(240);
/// Maximum number of mounts that the agent itself queries.
const MAX_LOCAL_MOUNTS: usize = 64;

struct Asked {
    fork: Fork,
    device: Vec<u8>,
    point: Vec<u8>,
    /// The mount point as in `/proc/mounts`.
    escaped: Vec<u8>,
}

impl Asked {
    /// Writes the mount's entry, unless statfs(2) fails: it was unmounted, or access is denied.
    fn write(&self, entries: &mut Entries<'_>) -> fmt::Result {
        let Some([block, blocks, free, available, magic]) = self.fork.answer() else {
            return Ok(());
        };
        let magic = u32::try_from(magic).unwrap_or(0);
        entries.add(&self.device, &self.point, &Space { block, blocks, free, available, magic })
    }
}

/// Writes the entries of all mounts. Errors: the output is closed.
pub(crate) fn write(flavour: Flavour, root: &Path, out: &mut dyn fmt::Write) -> fmt::Result {
    let Some(mut mounts) = Lines::open(&root.join("proc/mounts")) else { return Ok(()) };
    let (mut chosen, hanging) = (Filesystems::new(flavour), Hanging::read(root));
    let mut entries = Entries { out, flavour, some: false };
    let (mut waiting, mut hangs) = (Vec::<Asked>::new(), Vec::new());
    // Mounts that may hang. The path to a mount below one of them may hang, too.
    let mut above = Vec::<Vec<u8>>::new();
    let end = since_boot() + ALL_MOUNTS_TIMEOUT;
    while since_boot() < end
        && let Some(line) = mounts.next()
    {
        let Some(mount) = Mount::parse(line) else { continue };
        let is_below = |above: &Vec<u8>| {
            mount.point.strip_prefix(above.as_slice()).is_some_and(|rest| rest.starts_with(b"/"))
        };
        let is_covered = above.iter().any(is_below);
        if mount.may_hang() && !is_covered {
            above.push(mount.point.to_vec());
        }
        let may_hang = mount.may_hang() || is_covered;
        let Some((device, point)) = chosen.wanted(&mount) else { continue };
        if !may_hang {
            entries.ask(root, &device, &point)?;
            continue;
        }
        if hanging.holds(mount.point) || waiting.len() >= MAX_WAITING.min(hanging.room()) {
            continue;
        }
        let asks = || {
            let Space { block, blocks, free, available, magic } = ask(root, &point)?;
            Some([block, blocks, free, available, magic.into()])
        };
        // Replaces standard output, too: a hanging process would keep the report open. If no
        // process can be started, the entry is omitted.
        let Ok(fork) = Fork::start(&[stdin(); 3], &asks) else { continue };
        let asked = Asked { fork, device, point, escaped: mount.point.to_vec() };
        if asked.fork.has_ended(since_boot() + HANGS) {
            asked.write(&mut entries)?;
        } else {
            waiting.push(asked);
        }
        while reap().is_some() {}
    }
    let end = since_boot() + LAST_WAIT;
    for asked in waiting {
        if asked.fork.has_ended(end) {
            asked.write(&mut entries)?;
        } else {
            hangs.push((asked.fork.id(), asked.escaped));
        }
    }
    hanging.remember(hangs);
    Ok(())
}

/// Device and mount point of each mount; none of them can hang.
pub(crate) struct Local(Vec<(Vec<u8>, Vec<u8>)>);

/// Returns the mounts; `None` if one may hang, or there are too many.
pub(crate) fn local(flavour: Flavour, root: &Path) -> Option<Local> {
    let mut mounts = Lines::open(&root.join("proc/mounts"))?;
    let (mut chosen, mut found) = (Filesystems::new(flavour), Vec::new());
    while let Some(line) = mounts.next() {
        let mount = Mount::parse(line)?;
        if mount.may_hang() || found.len() > MAX_LOCAL_MOUNTS {
            return None;
        }
        found.extend(chosen.wanted(&mount));
    }
    Some(Local(found))
}

impl Local {
    pub(crate) fn write(
        &self,
        flavour: Flavour,
        root: &Path,
        out: &mut dyn fmt::Write,
    ) -> fmt::Result {
        let mut entries = Entries { out, flavour, some: false };
        self.0.iter().try_for_each(|(device, point)| entries.ask(root, device, point))
    }
}

struct Entries<'a> {
    out: &'a mut dyn fmt::Write,
    flavour: Flavour,
    /// Whether an entry has been written.
    some: bool,
}

impl Entries<'_> {
    /// Queries a mount that cannot hang, and writes its entry.
    fn ask(&mut self, root: &Path, device: &[u8], point: &[u8]) -> fmt::Result {
        ask(root, point).map_or(Ok(()), |space| self.add(device, point, &space))
    }

    fn add(&mut self, device: &[u8], point: &[u8], space: &Space) -> fmt::Result {
        let is_first = !std::mem::replace(&mut self.some, true);
        let mut json = if is_first { Writer::new(self.out) } else { Writer::continuing(self.out) };
        metrics::filesystem(&mut json, self.flavour, device, point, space);
        json.done()
    }
}

/// Calls statfs(2) on a mount point.
fn ask(root: &Path, point: &[u8]) -> Option<Space> {
    let relative = point.strip_prefix(b"/").unwrap_or(point);
    let answer = statfs(&root.join(std::ffi::OsStr::from_bytes(relative))).ok()?;
    // `f_type` is signed and has 32 or 64 bits; the magic number is the lower 32.
    let [a, b, c, d, ..] = answer.f_type.to_le_bytes();
    Some(Space {
        block: u64::try_from(answer.f_bsize).unwrap_or(0),
        blocks: answer.f_blocks,
        free: answer.f_bfree,
        available: answer.f_bavail,
        magic: u32::from_le_bytes([a, b, c, d]),
    })
}

/// Maximum number of stored mounts. If it is reached, no other mount that may hang is queried.
const MAX_HANGING: usize = 64;

/// Mounts that hung in earlier reports, each with the id of the process that hangs on it. Mount
/// points as in `/proc/mounts`, without newlines.
struct Hanging {
    path: PathBuf,
    known: Vec<(i32, Vec<u8>)>,
}

impl Hanging {
    fn read(root: &Path) -> Self {
        let path = root.join(run_dir::HANGING);
        let mut known = Vec::new();
        lines::each(&path, |line| {
            let mut parts = line.splitn(2, |byte| *byte == b' ');
            let process = parts.next().and_then(number).and_then(|pid| i32::try_from(pid).ok());
            if let (Some(process), Some(point)) = (process, parts.next())
                && known.len() < MAX_HANGING
            {
                known.push((process, point.to_vec()));
            }
        });
        Self { path, known }
    }

    /// Returns whether a process still hangs on this mount point.
    fn holds(&self, point: &[u8]) -> bool {
        self.known.iter().any(|(process, known)| known == point && is_there(*process))
    }

    /// Returns how many more mounts can be stored.
    fn room(&self) -> usize {
        MAX_HANGING.saturating_sub(self.known.len())
    }

    /// Stores the mounts that hang `now`, and earlier ones that still hang. Logs the new ones.
    fn remember(mut self, now: Vec<(i32, Vec<u8>)>) {
        let before = self.known.clone();
        self.known.retain(|(process, _)| is_there(*process));
        for (process, point) in now {
            if before.iter().all(|(_, known)| *known != point) {
                let point = std::ffi::OsStr::from_bytes(&point);
                log::warn(format_args!("{} hangs; skipped", point.display()));
            }
            self.known.push((process, point));
        }
        if self.known == before {
            return;
        }
        let text = self.known.iter().flat_map(|(process, point)| {
            [process.to_string().as_bytes(), b" ", point, b"\n"].concat()
        });
        // If the file is missing, the next report only waits again.
        if let Err(error) = write_small(&self.path, &text.collect::<Vec<u8>>()) {
            log::debug(format_args!("cannot write {}: {error}", self.path.display()));
        }
    }
}

fn is_there(process: i32) -> bool {
    Pid::from_raw(process).is_some_and(|process| test_kill_process(process).is_ok())
}
