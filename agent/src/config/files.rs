//! The host's config files (P§1.2): found in a directory, a share or a disk, and read once into memory.
//! A share that the agent mounts is unmounted at once, since a mounted one prevents live migration.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags, open, unlinkat};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::fchdir;

use crate::cli::options::Options;
use crate::config::disk;
use crate::guest_path::is_roots_alone;
use crate::runtime::clock::look_for;
use crate::runtime::small_files::read_bounded;
use crate::runtime::{log, run_dir};
use crate::start::devices::{self, Device, FS, Kind, PLAN9, SCSI, entries};
use crate::start::modules;

/// Longest config file, bytes; a certificate chain has a few thousand.
const LONGEST: u64 = 64 * 1024;
/// Longest file in `nics`, bytes; real ones have about 100.
const LONGEST_NIC: u64 = 4096;
/// Most files in `nics`; a VM has a few dozen PCI slots.
const MOST_NICS: usize = 64;
/// The config share's mount tag, for virtiofs and 9p (P§1.2).
const TAG: &str = "config";
/// The label of Incus' config disk (P§1.2).
const LABEL: &str = "incus-agent";
/// Longest wait for the kernel's scan of the SCSI bus.
const SCAN: Duration = Duration::from_secs(2);
/// The required files.
pub(crate) const NAMES: [&str; 3] = ["agent.crt", "agent.key", "server.crt"];
/// [`NAMES`] for messages.
const FILES: &str = "agent.crt, agent.key, server.crt";
/// Why a directory that nobody named is not used.
const FOREIGN: &str = "not used, since others than root can change it or a file in it";
/// Directories below the root to which the set-up scripts of the Go agents copy the files (P§1.5).
const COPIES: [&str; 2] = ["run/lxd_agent", "run/incus_agent"];

/// The contents of the host's files.
pub(crate) struct ConfigFiles {
    /// The agent's certificate, PEM.
    pub(crate) agent_crt: Vec<u8>,
    /// The key of `agent_crt`, PEM.
    pub(crate) agent_key: Vec<u8>,
    /// Certificate of the only accepted caller, PEM.
    pub(crate) server_crt: Vec<u8>,
    /// The host's address and certificate when it started the VM.
    pub(crate) agent_conf: Option<Vec<u8>>,
    /// Shares to mount, JSON.
    pub(crate) mounts: Option<Vec<u8>>,
    /// File name and contents of each file in `nics`, sorted by name.
    pub(crate) nics: Vec<(String, Vec<u8>)>,
    /// Name of the source, for log and status.
    pub(crate) from: String,
}

/// Why a source was not used.
enum SourceError {
    /// It has none of the required files.
    Empty,
    /// A file is missing or bad, or the source cannot be read.
    Bad(String),
    /// The mount point cannot be created, so that no source can be mounted.
    NoPlace(String),
}

/// Tries each source in turn; a directory given by option is the only one tried. `visit` is called with
/// the directory while it is mounted, since templates may be large and are copied straight from it. If
/// `visit` fails, the next source is tried.
///
/// # Errors
/// Each source with the reason it was not used, and what to do.
pub(crate) fn find(
    options: &Options,
    visit: &mut dyn FnMut(&Path, &ConfigFiles) -> Result<(), String>,
) -> Result<ConfigFiles, String> {
    find_by(options, &mut |directory: &Path, name: &str| {
        let files = read(directory, options.secrets_dir.as_deref(), name)?;
        visit(directory, &files).map_err(|why| SourceError::Bad(format!("{name}: {why}")))?;
        Ok(files)
    })
}

/// Reads the files of one directory; the second argument names the source.
type Read<'a> = &'a mut dyn FnMut(&Path, &str) -> Result<ConfigFiles, SourceError>;

/// The directories tried before any share.
pub(crate) fn directories(options: &Options) -> Vec<PathBuf> {
    let given: Vec<_> = options.config_dir.iter().chain(&options.secrets_dir).cloned().collect();
    if !given.is_empty() {
        return given;
    }
    let copies = COPIES.iter().map(|copy| options.root.join(copy));
    [PathBuf::from(".")].into_iter().chain(copies).collect()
}

fn find_by(options: &Options, read: Read<'_>) -> Result<ConfigFiles, String> {
    // Incus' agent reads all but the certificates from its working directory (P§1.1).
    let secrets = options.secrets_dir.as_ref().map(|secrets| (Path::new("."), secrets));
    if let Some((directory, name)) =
        options.config_dir.as_ref().map(|directory| (directory.as_path(), directory)).or(secrets)
    {
        let name = name.display().to_string();
        if options.config_dir.is_none() && !is_roots_alone(directory) {
            return Err(format!("the working directory: {FOREIGN}"));
        }
        return read(directory, &name).map_err(|why| match why {
            SourceError::Empty => {
                format!("no config files: {FILES} are not in {name}, given by option")
            }
            SourceError::Bad(why) | SourceError::NoPlace(why) => format!("config files: {why}"),
        });
    }
    let mut failures = Vec::new();
    for directory in directories(options) {
        let name = match directory.to_str() {
            Some(".") => "the working directory".to_owned(),
            _ => directory.display().to_string(),
        };
        if is_foreign(&directory) {
            failures.push(format!("{name}: {FOREIGN}"));
            continue;
        }
        match read(&directory, &name) {
            Ok(files) => return Ok(files),
            Err(SourceError::Empty) => failures.push(format!("not in {name}")),
            Err(SourceError::Bad(why) | SourceError::NoPlace(why)) => failures.push(why),
        }
    }
    if options.is_agent() {
        // An agent that was killed here has left its mount, over which the share cannot be mounted
        // again. The lock makes the mount point ours; `--check` has no lock.
        let place = &options.root.join(run_dir::SHARE);
        let _none = unmount(place, UnmountFlags::DETACH);
    }
    prepare(&options.root, "virtio_pci");
    for source in Source::in_order(&options.root) {
        match source.read(options, read) {
            Ok(files) => return Ok(files),
            Err(SourceError::Empty) => failures.push(format!("not on {}", source.name())),
            Err(SourceError::Bad(why)) => failures.push(why),
            Err(SourceError::NoPlace(why)) => return Err(format!("the config share: {why}")),
        }
    }
    let unmounted = devices::unmounted(&options.root);
    Err(format!("no config files ({FILES}): {}{unmounted}", failures.join("; ")))
}

/// Whether others than root could have put the files there.
fn is_foreign(directory: &Path) -> bool {
    let (mut found, mut trusted) = (false, is_roots_alone(directory));
    for name in NAMES {
        let path = directory.join(name);
        if path.symlink_metadata().is_ok() {
            found = true;
            trusted &= is_roots_alone(&path);
        }
    }
    found && !trusted
}

fn read(directory: &Path, secrets: Option<&Path>, name: &str) -> Result<ConfigFiles, SourceError> {
    let certificates = secrets.unwrap_or(directory);
    let file = |file: &str| {
        read_bounded(&certificates.join(file), LONGEST)
            .map_err(|error| SourceError::Bad(format!("{name}: {file}: {error}")))
    };
    if !NAMES.iter().any(|name| certificates.join(name).symlink_metadata().is_ok()) {
        // None of the files, or a directory that cannot be read.
        return Err(match certificates.read_dir().map_err(|error| (error.kind(), error)) {
            Err((kind, error)) if kind != ErrorKind::NotFound => {
                SourceError::Bad(format!("{name}: {error}"))
            }
            Ok(_) | Err(_) => SourceError::Empty,
        });
    }
    // An optional file.
    let maybe = |file: &str| match read_bounded(&directory.join(file), LONGEST) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => {
            log::warn(format_args!("{name}: {file}: {error}"));
            None
        }
    };
    Ok(ConfigFiles {
        agent_crt: file("agent.crt")?,
        agent_key: file("agent.key")?,
        server_crt: file("server.crt")?,
        agent_conf: maybe("agent.conf"),
        mounts: maybe("agent-mounts.json"),
        nics: nics(&directory.join("nics")),
        from: name.to_owned(),
    })
}

/// The files of the `nics` directory, sorted by name.
fn nics(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for path in entries(directory).into_iter().take(MOST_NICS) {
        let Some(name) = path.file_name().and_then(OsStr::to_str) else { continue };
        if !name.ends_with(".json") {
            continue;
        }
        match read_bounded(&path, LONGEST_NIC) {
            Ok(bytes) => files.push((name.to_owned(), bytes)),
            Err(error) => log::warn(format_args!("nics/{name}: {error}")),
        }
    }
    files.sort_unstable();
    files
}

/// Loads a module that may be needed; a failure is only logged.
fn prepare(root: &Path, module: &str) {
    if let Err(why) = modules::load(root, module) {
        // It may be built in without being listed; the mount reports what is really missing.
        log::debug(format_args!("{why}"));
    }
}

/// Ways in which a host offers its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Virtiofs,
    Plan9,
    Iso,
}

impl Source {
    fn name(self) -> &'static str {
        match self {
            Self::Virtiofs => "virtiofs share \"config\"",
            Self::Plan9 => "9p share \"config\"",
            Self::Iso => "disk \"incus-agent\"",
        }
    }

    /// All sources, those with a visible device first: loading a file system module that is not needed
    /// takes as long as the rest of the start. The disk comes before sources without a visible device.
    fn in_order(root: &Path) -> impl Iterator<Item = Self> {
        const ALL: [(Source, bool); 5] = [
            (Source::Virtiofs, true),
            (Source::Plan9, true),
            (Source::Iso, true),
            (Source::Virtiofs, false),
            (Source::Plan9, false),
        ];
        let no_sysfs = entries(&root.join("sys/bus/virtio/devices")).is_empty();
        let is_visible = move |source: Self| {
            let stage = source.device().map(|kind| devices::find(root, kind));
            no_sysfs || stage.is_none_or(|stage| stage > Device::Pci)
        };
        ALL.into_iter()
            .filter_map(move |(source, visible)| (is_visible(source) == visible).then_some(source))
    }

    /// Its virtio device type; `None` for the disk, which may be one of several.
    fn device(self) -> Option<&'static Kind> {
        match self {
            Self::Virtiofs => Some(&FS),
            Self::Plan9 => Some(&PLAN9),
            Self::Iso => None,
        }
    }

    fn read(self, options: &Options, read: Read<'_>) -> Result<ConfigFiles, SourceError> {
        let root = options.root.as_path();
        let needed: &[&str] = match self {
            Self::Virtiofs => &["virtiofs"],
            Self::Plan9 => &["9pnet_virtio", "9p"],
            Self::Iso => &["virtio_blk", "isofs"],
        };
        let mut loaded = Ok(());
        for module in needed {
            // Not final: it may be built in without being listed; the mount decides.
            loaded = loaded.and(modules::load(root, module));
        }
        // An agent that waits at start tries again anyway.
        let scan = if options.waits() { Duration::ZERO } else { SCAN };
        let place =
            root.join(if options.is_agent() { run_dir::SHARE } else { run_dir::CHECKED_SHARE });
        let mounted = Mounted::new(self, root, place, scan).map_err(|why| match why {
            Unmounted::Place(why) => SourceError::NoPlace(why),
            Unmounted::Errno(why) => {
                SourceError::Bad(format!("{}: {}", self.name(), self.explain(root, why, loaded)))
            }
        })?;
        read(&mounted.place, self.name())
    }

    /// Reason for the log, from the mount's error, the device's stage and the module's error.
    fn explain(self, root: &Path, why: Errno, loaded: Result<(), String>) -> String {
        let stage = self.device().map(|kind| devices::find(root, kind));
        match (why, loaded) {
            (Errno::NXIO, _) => "no such disk".into(),
            // Without its device, a share cannot be mounted: no other reason matters.
            _ if stage == Some(Device::Absent) => "no such device".into(),
            (Errno::NODEV, Err(why)) => why,
            (error @ (Errno::INVAL | Errno::NOENT), _) => {
                format!("{error}: no device with this name")
            }
            (error, _) => error.to_string(),
        }
    }
}

/// Incus' config disk, a CD-ROM (P§1.2). On a SCSI bus its drivers may have to be loaded first, after
/// which the kernel scans the bus in the background.
fn disk(root: &Path, scan: Duration) -> Option<PathBuf> {
    let found = disk::find(root, LABEL);
    if found.is_some() || devices::find(root, &SCSI) == Device::Absent {
        return found;
    }
    ["virtio_scsi", "sr_mod"].iter().for_each(|module| prepare(root, module));
    look_for(scan, || disk::find(root, LABEL))
}

/// Error of [`Mounted::new`].
enum Unmounted {
    /// The mount point cannot be created.
    Place(String),
    /// The kernel's reason; `NXIO` if there is no such disk.
    Errno(Errno),
}

/// A mounted share, unmounted when dropped, even if something was mounted over `/run` meanwhile.
struct Mounted {
    place: PathBuf,
    /// Parent directory of the mount point.
    above: OwnedFd,
}

impl Mounted {
    fn new(source: Source, root: &Path, place: PathBuf, scan: Duration) -> Result<Self, Unmounted> {
        std::fs::create_dir_all(&place)
            .map_err(|error| Unmounted::Place(run_dir::unwritable("make", &place, &error)))?;
        let above = directory(place.parent().unwrap_or(root)).map_err(Unmounted::Errno)?;
        let flags =
            MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC;
        let result = match source {
            Source::Virtiofs => mount(TAG, &place, "virtiofs", flags, None),
            Source::Plan9 => {
                mount(TAG, &place, "9p", flags, Some(c"trans=virtio,access=0,msize=131072"))
            }
            Source::Iso => match disk(root, scan) {
                Some(device) => mount(&device, &place, "iso9660", flags, None),
                None => Err(Errno::NXIO),
            },
        };
        match result {
            Ok(()) => Ok(Self { place, above }),
            Err(error) => {
                let _ours = std::fs::remove_dir(&place);
                Err(Unmounted::Errno(error))
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let name = Path::new(self.place.file_name().unwrap_or_default());
        let done = unmount(&self.place, UnmountFlags::DETACH).or_else(|_| {
            // The path leads elsewhere by now; relative to its parent directory the mount is found.
            let here = directory(Path::new("."))?;
            fchdir(&self.above)?;
            let done = unmount(name, UnmountFlags::DETACH);
            fchdir(here).and(done)
        });
        if let Err(error) = done {
            log::warn(format_args!("cannot unmount {}: {error}", self.place.display()));
        }
        let _ours = unlinkat(&self.above, name, AtFlags::REMOVEDIR);
    }
}

/// Opens a directory for fchdir(2) and unlinkat(2).
fn directory(path: &Path) -> Result<OwnedFd, Errno> {
    open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

#[cfg(test)]
mod tests;
