//! Size and free space of each mount. statfs(2) on a dead share (9p, NFS, FUSE) does not return, so
//! threads of the report's process call it. When all threads hang, one more is started; mounts that do not
//! answer in time are left out. The Go agents lose the whole report.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use mote_core::flavour::Flavour;
use mote_core::json::Writer;
use mote_core::report::metrics::{self, Filesystems};
use mote_core::report::proc::mounts::{Mount, Space};
use rustix::fs::{StatFs, statfs};

use crate::workers::report::hanging::Hanging;
use crate::workers::report::lines::Lines;
use crate::workers::report::pipe::Pipe;

/// Without an answer for this long, all threads count as hanging.
const HANGS: Duration = Duration::from_millis(60);
/// [`HANGS`] periods to wait for outstanding mounts once no thread is to be added.
const HANGS_BEFORE_END: u32 = 4;
/// Most threads, and so most hanging mounts before the remaining ones are left out.
const THREADS: usize = 16;
/// Time limit for all mounts; the agent waits 2.5 s for the whole report.
const ALL_MOUNTS_TIMEOUT: Duration = Duration::from_millis(1500);
/// Most mounts that the agent itself asks.
const MAX_LOCAL_MOUNTS: usize = 64;
/// Stack of a thread, bytes: it calls statfs(2) and writes a line of JSON.
const STACK: usize = 64 * 1024;

/// State that the threads share.
struct Work {
    /// `/proc/mounts`; `None` at its end.
    mounts: Option<Lines<std::fs::File>>,
    chosen: Filesystems,
    out: Pipe,
    result: fmt::Result,
    /// Whether an entry was written.
    some: bool,
    /// Mount points with a statfs(2) outstanding.
    asking: Vec<Vec<u8>>,
    answered: usize,
    hanging: Hanging,
}

/// `None` when time is up: a thread that returns late writes nothing.
type Shared = Mutex<Option<Work>>;

/// Writes the entries of all mounts.
///
/// # Errors
/// The output is closed.
pub(crate) fn write(flavour: Flavour, root: &Path, out: Pipe) -> Result<Pipe, fmt::Error> {
    let Some(mounts) = Lines::open(&root.join("proc/mounts")) else { return Ok(out) };
    let work = Work {
        mounts: Some(mounts),
        chosen: Filesystems::new(flavour),
        out,
        result: Ok(()),
        some: false,
        asking: Vec::new(),
        answered: 0,
        hanging: Hanging::read(root),
    };
    let shared = Arc::new(Mutex::new(Some(work)));
    let begun = Instant::now();
    let (mut threads, mut seen, mut still) = (0, 0, 0);
    loop {
        let (answered, all, idle) = match lock(&shared).as_ref() {
            Some(work) => (work.answered, work.mounts.is_none(), work.asking.is_empty()),
            None => return Err(fmt::Error),
        };
        still = if answered > seen { 0 } else { still + 1 };
        seen = answered;
        if all && idle || begun.elapsed() > ALL_MOUNTS_TIMEOUT {
            break;
        }
        if still > 0 && !all && threads < THREADS {
            start(&shared, flavour, root);
            threads += 1;
        } else if still > HANGS_BEFORE_END {
            break;
        }
        thread::park_timeout(HANGS);
    }
    let work = lock(&shared).take().ok_or(fmt::Error)?;
    work.hanging.remember(&work.asking);
    work.result?;
    Ok(work.out)
}

fn lock(shared: &Shared) -> MutexGuard<'_, Option<Work>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start(shared: &Arc<Shared>, flavour: Flavour, root: &Path) {
    let (shared, root, main) = (shared.clone(), root.to_owned(), thread::current());
    // If no thread can be started, entries are left out.
    let _started =
        thread::Builder::new().stack_size(STACK).spawn(move || ask(&shared, flavour, &root, &main));
}

/// A thread: calls statfs(2) on one mount after the other until there are no more.
fn ask(shared: &Shared, flavour: Flavour, root: &Path, main: &Thread) {
    loop {
        let mut guard = lock(shared);
        let Some(work) = guard.as_mut() else { return };
        let Some(line) = work.mounts.as_mut().and_then(Lines::next) else {
            work.mounts = None;
            main.unpark();
            return;
        };
        let Some((device, point)) = work.chosen.wanted(line) else { continue };
        if work.hanging.holds(&point) {
            continue;
        }
        work.asking.push(point.clone());
        drop(guard);
        let answer = ask_one(root, &point);
        let mut guard = lock(shared);
        let Some(work) = guard.as_mut() else { return };
        work.answered += 1;
        work.asking.retain(|asked| *asked != point);
        // A mount that fails (unmounted since, or not permitted) is left out.
        if let Ok(answer) = answer {
            work.write(flavour, &device, &point, &space(&answer));
        }
    }
}

/// Mounts to be reported, device and mount point, none of which can hang.
pub(crate) struct Local(Vec<(Vec<u8>, Vec<u8>)>);

/// Those mounts; `None` if a mount of this machine may hang, or there are many.
pub(crate) fn local(flavour: Flavour, root: &Path) -> Option<Local> {
    let mut mounts = Lines::open(&root.join("proc/mounts"))?;
    let (mut chosen, mut found) = (Filesystems::new(flavour), Vec::new());
    while let Some(line) = mounts.next() {
        if Mount::parse(line)?.may_hang() || found.len() > MAX_LOCAL_MOUNTS {
            return None;
        }
        found.extend(chosen.wanted(line));
    }
    Some(Local(found))
}

impl Local {
    /// Writes their entries.
    pub(crate) fn write(
        &self,
        flavour: Flavour,
        root: &Path,
        out: &mut dyn fmt::Write,
    ) -> fmt::Result {
        let mut some = false;
        for (device, point) in &self.0 {
            if let Ok(answer) = ask_one(root, point) {
                write_entry(out, flavour, some, (device, point), &space(&answer))?;
                some = true;
            }
        }
        Ok(())
    }
}

/// statfs(2) on a mount point.
fn ask_one(root: &Path, point: &[u8]) -> rustix::io::Result<StatFs> {
    let relative = point.strip_prefix(b"/").unwrap_or(point);
    statfs(root.join(std::ffi::OsStr::from_bytes(relative)))
}

fn write_entry(
    out: &mut dyn fmt::Write,
    flavour: Flavour,
    some: bool,
    (device, point): (&[u8], &[u8]),
    space: &Space,
) -> fmt::Result {
    let mut json = if some { Writer::continuing(out) } else { Writer::new(out) };
    metrics::filesystem(&mut json, flavour, device, point, space);
    json.done()
}

impl Work {
    fn write(&mut self, flavour: Flavour, device: &[u8], point: &[u8], space: &Space) {
        let written = write_entry(&mut self.out, flavour, self.some, (device, point), space);
        self.some = true;
        self.result = self.result.and(written);
    }
}

fn space(answer: &StatFs) -> Space {
    // `f_type` is signed, of 32 or 64 bits; the magic number is the lower 32.
    let [a, b, c, d, ..] = answer.f_type.to_le_bytes();
    Space {
        block: u64::try_from(answer.f_bsize).unwrap_or(0),
        blocks: answer.f_blocks,
        free: answer.f_bfree,
        available: answer.f_bavail,
        magic: u32::from_le_bytes([a, b, c, d]),
    }
}
