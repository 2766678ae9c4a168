//! `mote-agent mount-worker MILLISECONDS`: mounts or unmounts one share and ends. It reads one JSON
//! document, an entry of `agent-mounts.json` or a device event, and prints one line. Exit code 0 means
//! that the document is carried out. A mount whose host is dead blocks only this process.
//!
//! It uses mount(2), since an initramfs has no mount(8). A device may appear after its event (field notes
//! 30), so a missing tag is tried again, with growing pauses, until the time is over.

use std::ffi::CString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use mote_core::guest_path::Target;
use mote_core::hostapi::mount::{BadMount, Entry, Kind, Wanted, Way, entries, removable, wanted};
use mote_core::json::Value;
use rustix::fs::{Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::cli::options::Options;
use crate::runtime::digest::sha256;
use crate::runtime::log;
use crate::runtime::small_files::read_bounded;
use crate::start::modules;

/// Longest document, bytes: a pipe's capacity.
const LONGEST: u64 = 64 * 1024;
/// Longest mount table, bytes; a guest that runs containers has some hundred lines of 200.
const TABLE: u64 = 8 * 1024 * 1024;
/// First and longest pause between attempts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(400));

/// Runs the worker: reads the document, carries it out, prints the result.
#[inline(never)] // the agent itself needs none of its stack
pub(crate) fn run(options: &Options, limit: Duration) -> ExitCode {
    let end = Instant::now() + limit;
    let mut document = Vec::new();
    let read = io::stdin().lock().take(LONGEST).read_to_end(&mut document);
    let done = match read {
        Ok(_) => act(options, &document, end),
        Err(error) => Err(error.to_string()),
    };
    let (text, code) = match done {
        Ok(text) => (text, ExitCode::SUCCESS),
        Err(text) => (text, ExitCode::FAILURE),
    };
    match writeln!(io::stdout(), "{text}") {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

fn act(options: &Options, document: &[u8], end: Instant) -> Result<String, String> {
    let flavour = options.flavour.unwrap_or(mote_core::flavour::Flavour::Lxd);
    let root = options.root.as_path();
    let document = Value::parse(document).map_err(|_| BadMount::Shape.to_string())?;
    match wanted(flavour, document, sha256).map_err(|why| why.to_string())? {
        Wanted::Mount { source, target, ways, over } => {
            let point = mount_point(root, &source, &target, over);
            let text = point.and_then(|(point, mounted)| match mounted {
                Some(mounted) => Ok(mounted),
                None => mount_share(root, &source, &point, &ways, end),
            });
            text.map_err(|why| format!("{source} on /{target}: {why}"))
        }
        Wanted::UnmountTarget(target) => unmount_target(root, &target),
        Wanted::UnmountSource(source) => unmount_all(root, |entry| entry.source == source)
            .map_err(|why| format!("{source}: {why}")),
        Wanted::Nothing => Ok("nothing to do".into()),
    }
}

/// The mount point, and a message if something is mounted there already and is left alone. With `over`
/// that is only the same source.
fn mount_point(
    root: &Path,
    source: &str,
    target: &str,
    over: bool,
) -> Result<(PathBuf, Option<String>), String> {
    let (_open, point) = enter(root, target).map_err(|error| error.to_string())?;
    let mut table = table(root)?.into_iter();
    let mounted =
        table.rfind(|entry| Path::new(&entry.point) == point && (!over || entry.source == source));
    let mounted = mounted.map(|mounted| {
        format!("{} has {} ({}) on it already", point.display(), mounted.source, mounted.kind)
    });
    Ok((point, mounted))
}

/// Loads the modules and mounts the share, by the first way that works.
fn mount_share(
    root: &Path,
    source: &str,
    point: &Path,
    ways: &[Way],
    end: Instant,
) -> Result<String, String> {
    for way in ways {
        load(root, way.kind);
    }
    let mut pause = PAUSES.0;
    loop {
        let mut why = None;
        for way in ways {
            match try_way(source, point, way) {
                Ok(()) => {
                    let kind = way.kind.name();
                    return Ok(format!("{source} is on {} ({kind})", point.display()));
                }
                // Report the first way's error, unless the kernel lacks its file system.
                Err(error) if why.is_none() || is_known(root, way.kind) => {
                    why = Some((way.kind, error));
                }
                Err(_) => {}
            }
        }
        let Some((kind, error)) = why else { return Err(BadMount::Kind.to_string()) };
        let known = ways.iter().any(|way| is_known(root, way.kind));
        let passing = matches!(error, Errno::NOENT | Errno::NODEV | Errno::INVAL);
        if !known || !passing || Instant::now() + pause > end {
            return Err(format!("{}: {error}", kind.name()));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSES.1);
    }
}

fn try_way(source: &str, point: &Path, way: &Way) -> Result<(), Errno> {
    let flags = MountFlags::from_bits_retain(way.flags);
    let data = CString::new(way.data.as_str()).map_err(|_| Errno::INVAL)?;
    mount(source, point, way.kind.name(), flags, Some(data.as_c_str()))
}

fn load(root: &Path, kind: Kind) {
    let wanted: &[&str] = match kind {
        Kind::Virtiofs => &["virtio_pci", "virtiofs"],
        Kind::Plan9 => &["virtio_pci", "9pnet_virtio", "9p"],
    };
    for module in wanted {
        if let Err(why) = modules::load(root, module) {
            // It may be built in without being listed; the mount reports what is really missing.
            log::debug(format_args!("{why}"));
        }
    }
}

/// Whether the kernel has this file system now, after its modules were loaded.
fn is_known(root: &Path, kind: Kind) -> bool {
    // Without /proc, the mount's own error decides.
    let Ok(list) = std::fs::read_to_string(root.join("proc/filesystems")) else { return true };
    list.lines().any(|line| line.split_whitespace().next_back() == Some(kind.name()))
}

/// Opens the directory to mount on, creating missing parts, and returns its real path. Symbolic links of
/// the guest are followed; magic links of `/proc`, which lead outside the root, are not.
fn enter(root: &Path, target: &str) -> io::Result<(OwnedFd, PathBuf)> {
    let target = Target::parse(target).ok_or(io::ErrorKind::InvalidInput)?;
    let base = openat(rustix::fs::CWD, root, directory(), Mode::empty())?;
    let mut parent = base.try_clone()?;
    let mut path = PathBuf::new();
    for part in target.parts() {
        path.push(part);
        parent = match open_below(&base, &path, &parent, part) {
            Err(Errno::NOENT) => {
                match mkdirat(&parent, part, Mode::from_raw_mode(0o755)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                open_below(&base, &path, &parent, part)?
            }
            opened => opened?,
        };
    }
    let point = real_path(&parent)?;
    Ok((parent, point))
}

fn directory() -> OFlags {
    OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC
}

fn open_below(base: &OwnedFd, path: &Path, parent: &OwnedFd, part: &str) -> Result<OwnedFd, Errno> {
    let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    match openat2(base, path, directory(), Mode::empty(), how) {
        // Before Linux 5.6: one component at a time, and nothing in /proc.
        Err(Errno::NOSYS) if path.starts_with("proc") => Err(Errno::LOOP),
        Err(Errno::NOSYS) => openat(parent, part, directory(), Mode::empty()),
        opened => opened,
    }
}

fn real_path(open: &impl AsFd) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", open.as_fd().as_raw_fd()))
}

fn table(root: &Path) -> Result<Vec<Entry>, String> {
    let path = root.join("proc/self/mountinfo");
    // A test's root has no /proc; this process's own shows the same mounts.
    let path = if path.exists() { path } else { "/proc/self/mountinfo".into() };
    let table =
        read_bounded(&path, TABLE).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(entries(&table).collect())
}

/// Unmounts the shares at a path, which is how LXD names them. Other mounts there are left alone.
fn unmount_target(root: &Path, target: &str) -> Result<String, String> {
    let named = root.join(target);
    let mut point = named.clone();
    if !table(root)?.iter().any(|entry| Path::new(&entry.point) == named) {
        // The mount followed the guest's symbolic links, so does the unmount.
        match std::fs::canonicalize(&named) {
            Ok(real) => point = real,
            Err(_) => return Ok(format!("nothing is on {}", named.display())),
        }
    }
    unmount_all(root, |entry| Path::new(&entry.point) == point)
        .map_err(|why| format!("{}: {why}", point.display()))
}

/// Unmounts the shares that `chosen` selects, the last mounted first.
fn unmount_all(root: &Path, chosen: impl Fn(&Entry) -> bool) -> Result<String, String> {
    let table = table(root)?;
    let mut gone = Vec::new();
    for share in removable(&table, chosen) {
        unmount(&share.point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
            .map_err(|error| error.to_string())?;
        gone.push(format!("{} is off {}", share.source, share.point));
    }
    Ok(if gone.is_empty() { "nothing is mounted".into() } else { gone.join(", ") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn scratch(name: &str) -> PathBuf {
        std::fs::canonicalize(crate::runtime::scratch::scratch(name)).unwrap()
    }

    #[test]
    fn directories_are_made_and_the_guests_own_links_followed_within_the_root() {
        let root = scratch("enter");
        assert_eq!(enter(&root, "mnt/a/b").unwrap().1, root.join("mnt/a/b"));
        symlink("/mnt", root.join("media")).unwrap();
        assert_eq!(enter(&root, "media/./c/").unwrap().1, root.join("mnt/c"));
        std::fs::write(root.join("file"), "").unwrap();
        assert!(enter(&root, "file/x").is_err() && enter(&root, "file").is_err());
        symlink("nowhere", root.join("dangling")).unwrap();
        assert!(enter(&root, "dangling").is_err());
        symlink("loop", root.join("loop")).unwrap();
        assert!(enter(&root, "loop").is_err());
    }

    #[test]
    fn the_links_of_proc_are_not_followed() {
        for link in ["cwd", "root", "fd/0"] {
            let path = format!("proc/self/{link}/mote-x");
            let error = enter(Path::new("/"), &path).err().map(|error| error.raw_os_error());
            assert_eq!(error, Some(Some(Errno::LOOP.raw_os_error())), "{path}");
        }
    }

    #[test]
    fn a_mount_that_is_there_is_left_alone() {
        let mounted = |source, over| mount_point(Path::new("/"), source, "proc", over).unwrap().1;
        let said = Some("/proc has proc (proc) on it already".to_owned());
        assert_eq!((mounted("tag", false), mounted("proc", true)), (said.clone(), said));
        assert_eq!(mounted("tag", true), None);
        // Not a share, so the host cannot unmount it.
        assert_eq!(unmount_target(Path::new("/"), "proc").unwrap(), "nothing is mounted");
    }

    #[test]
    fn a_file_system_that_the_kernel_does_not_have_is_not_waited_for() {
        let root = scratch("unknown");
        std::fs::create_dir_all(root.join("proc")).unwrap();
        std::fs::write(root.join("proc/filesystems"), "nodev\ttmpfs\n\text4\n").unwrap();
        assert!(!is_known(&root, Kind::Virtiofs));
        let way = Way { kind: Kind::Virtiofs, flags: 0, data: String::new() };
        let begun = Instant::now();
        let end = begun + Duration::from_secs(60);
        assert!(mount_share(&root, "mote-no-such-tag", &root, &[way], end).is_err());
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}
