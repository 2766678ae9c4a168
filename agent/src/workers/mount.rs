//! `mote-agent mount-worker MILLISECONDS AGENT`: mounts or unmounts one share and exits. It reads one
//! JSON document, an entry of `agent-mounts.json` or a device event, and prints one line. Without a
//! document, it mounts all shares of `agent-mounts.json`. A dead host blocks only this process.
//!
//! It uses mount(2), because an initramfs has no mount(8). A device may appear after its event
//! (incus#1881), so a missing tag is retried, with growing pauses, until the time limit.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use mote_core::hostapi::mount::{
    BadMount, Entry, Kind, MAX_MOUNTS, Wanted, Way, entries, shares, wanted,
};
use mote_core::json::Value;
use mote_core::report::proc::number;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use rustix::stdio::stdin;

use crate::config::files;
use crate::guest_path::{by_descriptor, enter, real_path};
use crate::options::Options;
use crate::print;
use crate::runtime::{MAX_DOCUMENT, read_bounded, read_text, read_to_end, sha256};
use crate::sys::{file, since_boot};
use crate::system::modules;

/// Maximum size of the mount table, in bytes; with containers it has a few hundred lines of 200.
const TABLE: u64 = 8 * 1024 * 1024;
/// First and maximum pause between attempts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(400));

#[inline(never)] // the agent itself needs none of its stack
pub(crate) fn run(options: &Options, limit: Duration, agent: i32) -> u8 {
    // A worker that hangs after its agent was killed could mount over a share of the next agent. It
    // accepts any signal.
    let _done = set_parent_process_death_signal(Some(Signal::KILL));
    let end = since_boot() + limit;
    let done = match read_to_end(stdin(), MAX_DOCUMENT) {
        // The agent was killed before that call, so the signal never comes.
        _ if Pid::as_raw(getppid()) != agent => Err("the agent has ended".into()),
        Ok(document) => act(options, &document, end),
        Err(error) => Err(error.to_string()),
    };
    let (text, code) = match done {
        Ok(text) => (text, 0),
        Err(text) => (text, 1),
    };
    match print::exact(format!("{text}\n").as_bytes()) {
        Ok(()) => code,
        Err(_) => 1,
    }
}

/// Applies the document; returns the line to print, also on failure.
fn act(options: &Options, document: &[u8], end: Duration) -> Result<String, String> {
    if document.is_empty() {
        let files = files::find(options, &mut |_, _| Ok(()))?;
        let list = files.mounts.unwrap_or_default();
        let mut all = String::new();
        for entry in Value::parse(&list).unwrap_or(Value::NULL).elements().take(MAX_MOUNTS) {
            let (Ok(text) | Err(text)) = act(options, entry.raw().as_bytes(), end);
            all.extend([if all.is_empty() { "" } else { "; " }, &text]);
        }
        return Ok(all);
    }
    let flavour = options.flavour.unwrap_or(mote_core::flavour::Flavour::Lxd);
    let root = options.root.as_path();
    let document = Value::parse(document).map_err(|_| BadMount::Shape.to_string())?;
    match wanted(flavour, document, sha256).map_err(|why| why.to_string())? {
        Wanted::Mount { source, target, ways, over } => {
            let place = mount_point(root, &source, &target, over);
            let text = place.and_then(|(place, mounted)| match mounted {
                Some(mounted) => Ok(mounted),
                None => mount_share(root, (&source, &target), &place, &ways, end),
            });
            text.map_err(|why| format!("{source} on /{target}: {why}"))
        }
        Wanted::UnmountTarget(target) => unmount_target(root, &target),
        Wanted::UnmountSource(source) => unmount_all(root, &|entry| entry.source == source)
            .map_err(|why| format!("{source}: {why}")),
        Wanted::Nothing => Ok("nothing to do".into()),
    }
}

/// Opens the directory to mount on. Also returns a message if another mount is in the way: any mount
/// there or, if `over`, only one of the same source.
fn mount_point(
    root: &Path,
    source: &str,
    target: &str,
    over: bool,
) -> Result<(OwnedFd, Option<String>), String> {
    let place = enter(root, target, true).map_err(|why| why.to_string())?;
    let point = real_path(&place).map_err(|why| why.to_string())?;
    let mut table = table(root)?.into_iter();
    let mounted = table
        .rfind(|entry| point.as_os_str() == &*entry.point && (!over || entry.source == source));
    let mounted = mounted.map(|mounted| {
        format!("{} is a mount point of {} ({})", point.display(), mounted.source, mounted.kind)
    });
    Ok((place, mounted))
}

/// Loads the modules and mounts the share in the first way that works, until `end` (since boot).
fn mount_share(
    root: &Path,
    (source, target): (&str, &str),
    place: &OwnedFd,
    ways: &[Way],
    end: Duration,
) -> Result<String, String> {
    for way in ways {
        load(root, way.kind);
    }
    let mut pause = PAUSES.0;
    loop {
        let mut why = None;
        for way in ways {
            let kind = way.kind.name();
            match attach(source, place, kind, way.flags, &way.data) {
                Ok(()) => {
                    let point = verify(root, source, target)?;
                    return Ok(format!("mounted {source} on {point} ({kind})"));
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
        if !known || !passing || since_boot() + pause > end {
            return Err(format!("{}: {error}", kind.name()));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Mounts on an open directory, even if it was moved.
fn attach(source: &str, place: &OwnedFd, kind: &str, flags: u32, data: &str) -> Result<(), Errno> {
    let flags = MountFlags::from_bits_retain(flags);
    let data = CString::new(data).map_err(|_| Errno::INVAL)?;
    let [source, kind] = [source, kind].map(|text| file::name(text.as_ref()));
    let place = file::name(&by_descriptor(place))?;
    mount(&*source?, &*place, &*kind?, flags, Some(data.as_c_str()))
}

/// Returns the mount point of the new share. If the target no longer leads there, because a user
/// has moved a directory above it, unmounts the share.
fn verify(root: &Path, source: &str, target: &str) -> Result<String, String> {
    let table = table(root)?;
    let mut ours = table.iter().filter(|entry| entry.source == source);
    let newest = ours.next_back().ok_or("mounted, but not in the mount table")?;
    let there = enter(root, target, false).ok().and_then(|open| mount_id(&open));
    if there == Some(newest.id) {
        return Ok(newest.point.clone());
    }
    take_off(newest)?;
    Err("the directory was moved meanwhile; not mounted".into())
}

fn mount_id(open: &OwnedFd) -> Option<u64> {
    let about = format!("/proc/self/fdinfo/{}", open.as_raw_fd());
    let about = read_bounded(about.as_ref(), MAX_DOCUMENT).ok()?;
    let mut lines = about.split(|byte| *byte == b'\n');
    number(lines.find_map(|line| line.strip_prefix(b"mnt_id:"))?.trim_ascii())
}

/// Unmounts exactly this mount. Its path may now lead to another one.
fn take_off(entry: &Entry) -> Result<(), String> {
    let gone = enter(Path::new("/"), &entry.point, false).and_then(|open| {
        if mount_id(&open) != Some(entry.id) {
            return Err(Errno::NOENT.into());
        }
        let place = file::name(&by_descriptor(&open))?;
        Ok(unmount(&*place, UnmountFlags::DETACH)?)
    });
    gone.map_err(|error| format!("{} on {}: {error}", entry.source, entry.point))
}

fn load(root: &Path, kind: Kind) {
    let wanted: &[&str] = match kind {
        Kind::Virtiofs => &["virtiofs"],
        Kind::Plan9 => &["9pnet_virtio", "9p"],
    };
    modules::prepare(root, wanted);
}

fn is_known(root: &Path, kind: Kind) -> bool {
    // Without /proc, the mount's own error decides.
    let Ok(list) = read_text(&root.join("proc/filesystems")) else { return true };
    list.lines().any(|line| line.split_ascii_whitespace().next_back() == Some(kind.name()))
}

fn table(root: &Path) -> Result<Vec<Entry>, String> {
    let path = root.join("proc/self/mountinfo");
    // A test's root has no /proc; this process's own shows the same mounts.
    let path = if file::exists(&path) { path } else { "/proc/self/mountinfo".into() };
    let table =
        read_bounded(&path, TABLE).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(entries(&table).collect())
}

/// Unmounts the shares at a path, which is how LXD names them. Ignores other mounts there.
fn unmount_target(root: &Path, target: &str) -> Result<String, String> {
    let point = match enter(root, target, false).and_then(|open| real_path(&open)) {
        // The covering mount may lack the directory.
        Err(error) if error.kind() == io::ErrorKind::NotFound => root.join(target),
        point => point.map_err(|error| format!("/{target}: {error}"))?,
    };
    unmount_all(root, &|entry| point.as_os_str() == &*entry.point)
}

/// Unmounts the shares that `chosen` selects, the most recent first.
/// Errors: another mount covers all of them.
fn unmount_all(root: &Path, chosen: &dyn Fn(&Entry) -> bool) -> Result<String, String> {
    let table = table(root)?;
    let (mut gone, mut kept) = (Vec::new(), None);
    for (share, cover) in shares(&table, chosen) {
        let Entry { source, point, .. } = share;
        match cover {
            None => {
                take_off(share)?;
                gone.push(format!("unmounted {source} from {point}"));
            }
            Some(Entry { source: cover, kind, .. }) => {
                kept =
                    Some(format!("{source} stays mounted on {point}: {cover} ({kind}) covers it"));
            }
        }
    }
    match kept {
        Some(why) if gone.is_empty() => Err(why),
        None if gone.is_empty() => Ok("nothing is mounted".into()),
        // Of two shares at one point, the host means the later one.
        _ => Ok(gone.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::scratch;
    use mote_machine::Private;
    use std::os::unix::fs::symlink;

    /// Runs the test with this name again in its own mount namespace; true inside.
    #[track_caller]
    fn in_private_mounts(test: &str) -> bool {
        mote_machine::in_private(Private::Mounts, &format!("workers::mount::tests::{test}"))
    }

    #[test]
    fn mounts_a_share_only_at_its_target() {
        let true = in_private_mounts("mounts_a_share_only_at_its_target") else { return };
        let root = scratch("swapped");
        let point = |entry: &Entry| entry.source.starts_with("share").then(|| entry.point.clone());
        let points = || table(&root).unwrap().iter().filter_map(point).collect::<Vec<_>>();
        let path = |path: &str| root.join(path).display().to_string();
        let (place, mounted) = mount_point(&root, "share", "home/d", false).unwrap();
        assert_eq!(mounted, None);
        attach("share", &place, "tmpfs", 0, "size=64k").unwrap();
        assert_eq!(verify(&root, "share", "home/d"), Ok(path("home/d")));
        let (place, mounted) = mount_point(&root, "share2", "home/d", true).unwrap();
        assert_eq!(mounted, None);
        attach("share2", &place, "tmpfs", 0, "").unwrap();
        assert_eq!(verify(&root, "share2", "home/d"), Ok(path("home/d")));
        assert_eq!(points(), [path("home/d"), path("home/d")]);
        let left = table(&root).unwrap();
        assert!(take_off(left.iter().find(|entry| entry.source == "share").unwrap()).is_err());
        for source in ["share2", "share"] {
            take_off(left.iter().find(|entry| entry.source == source).unwrap()).unwrap();
        }
        assert_eq!(points(), Vec::<String>::new());
        // Replaced while waiting for the device: first with a link, then with another directory.
        std::fs::create_dir(root.join("etc")).unwrap();
        for swap in [false, true] {
            let (place, _) = mount_point(&root, "share", "home/d", false).unwrap();
            std::fs::rename(root.join("home/d"), root.join(format!("home/{swap}"))).unwrap();
            if swap {
                std::fs::create_dir(root.join("home/d")).unwrap();
            } else {
                symlink("/etc", root.join("home/d")).unwrap();
            }
            attach("share", &place, "tmpfs", 0, "").unwrap();
            assert_eq!(points(), [path(&format!("home/{swap}"))]);
            let why = verify(&root, "share", "home/d").unwrap_err();
            assert!(why.contains("moved"), "{why}");
            assert_eq!(points(), Vec::<String>::new());
            let _link = std::fs::remove_file(root.join("home/d"));
        }
    }

    #[test]
    fn an_unmount_follows_no_link_of_a_user() {
        let true = in_private_mounts("an_unmount_follows_no_link_of_a_user") else { return };
        let root = scratch("unmount");
        let (place, _) = mount_point(&root, "share", "srv/d", false).unwrap();
        attach("share", &place, "tmpfs", 0, "").unwrap();
        // The mount table as if that mount were a share.
        let shares = || {
            let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
            let shown = table.replace("- tmpfs share", "- virtiofs share");
            crate::runtime::put(&root, "proc/self/mountinfo", shown);
            table.contains("- tmpfs share")
        };
        assert!(shares());
        std::fs::create_dir(root.join("home")).unwrap();
        for (owner, link) in [(Some(65_534), "home/his"), (None, "home/roots")] {
            symlink("/srv", root.join(link)).unwrap();
            std::os::unix::fs::lchown(root.join(link), owner, None).unwrap();
        }
        assert_eq!(unmount_target(&root, "home/none").unwrap(), "nothing is mounted");
        assert_eq!(unmount_target(&root, "home").unwrap(), "nothing is mounted");
        if rustix::process::getuid().is_root() {
            let why = unmount_target(&root, "home/his/d").unwrap_err();
            assert!(why.contains("users other than root") && shares(), "{why}");
        }
        // Another mount covers the share: at the same point, or above, where no path leads to it.
        for (cover, point) in [("over", "srv/d"), ("above", "srv")] {
            let (place, _) = mount_point(&root, cover, point, true).unwrap();
            attach(cover, &place, "tmpfs", 0, "").unwrap();
            assert!(shares());
            let stays = format!(
                "share stays mounted on {}: {cover} (tmpfs) covers it",
                root.join("srv/d").display()
            );
            assert_eq!(unmount_target(&root, "srv/d").unwrap_err(), stays);
            assert_eq!(unmount_all(&root, &|entry| entry.source == "share").unwrap_err(), stays);
            let all = table(&root).unwrap();
            take_off(all.iter().find(|entry| entry.source == cover).unwrap()).unwrap();
            assert!(shares());
        }
        let off = format!("unmounted share from {}", root.join("srv/d").display());
        assert_eq!(unmount_target(&root, "home/roots/d").unwrap(), off);
        assert!(!shares());
    }

    #[test]
    fn does_not_change_an_existing_mount() {
        let mounted = |source, over| mount_point(Path::new("/"), source, "proc", over).unwrap().1;
        let said = Some("/proc is a mount point of proc (proc)".to_owned());
        assert_eq!((mounted("tag", false), mounted("proc", true)), (said.clone(), said));
        assert_eq!(mounted("tag", true), None);
        // The host cannot unmount it, because it is not a share.
        assert_eq!(unmount_target(Path::new("/"), "proc").unwrap(), "nothing is mounted");
    }

    #[test]
    fn does_not_wait_for_an_unsupported_file_system() {
        let root = scratch("unknown");
        crate::runtime::put(&root, "proc/filesystems", "nodev\ttmpfs\n\text4\n");
        assert!(!is_known(&root, Kind::Virtiofs));
        let way = Way { kind: Kind::Virtiofs, flags: 0, data: String::new() };
        let end = since_boot() + Duration::from_secs(9999);
        let place = enter(&root, "x", true).unwrap();
        assert!(mount_share(&root, ("mote-no-such-tag", "x"), &place, &[way], end).is_err());
    }
}
