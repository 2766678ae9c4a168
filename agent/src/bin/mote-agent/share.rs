//! The files the host gives us (P§1.2), wherever they are: read once into memory. A share that we
//! mount ourselves is unmounted at once, since a mounted one stops live migration.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::clock::look_for;
use crate::iso::{self, read_bounded};
use crate::options::{Command, Options};
use crate::{log, modules};

/// Longest file, bytes; a chain of certificates has a few thousand.
const LONGEST: u64 = 64 * 1024;
/// Longest file in `nics`, bytes; real ones have about 100.
const LONGEST_NIC: u64 = 4096;
/// Most of them; a VM has a few dozen PCI slots.
const MOST_NICS: usize = 64;
/// The config share's mount tag, for virtiofs and 9p (P§1.2).
const TAG: &str = "config";
/// The label of Incus' config disk (P§1.2).
const LABEL: &str = "incus-agent";
/// How long a SCSI bus may be looked through.
const SCAN: Duration = Duration::from_secs(2);
/// Where we mount it, below the root.
const PLACE: &str = "run/mote/share";
/// Where the set-up scripts of the Go agents put a copy (P§1.5).
const COPIES: [&str; 2] = ["run/lxd_agent", "run/incus_agent"];

/// What was found.
pub(crate) struct ConfigFiles {
    /// Our certificate.
    pub(crate) agent_crt: Vec<u8>,
    /// Its key.
    pub(crate) agent_key: Vec<u8>,
    /// The one caller we accept.
    pub(crate) server_crt: Vec<u8>,
    /// Where the host was when it started the VM.
    pub(crate) agent_conf: Option<Vec<u8>>,
    /// Shares to mount, JSON.
    pub(crate) mounts: Option<Vec<u8>>,
    /// What NICs are to be called, by file name.
    pub(crate) nics: Vec<(String, Vec<u8>)>,
    /// Where all this was, for people.
    pub(crate) from: String,
}

/// Looks everywhere; what is asked for by option is looked at alone. `visit` is called with the
/// place while it is still there: templates may be large, and are copied right from it.
///
/// # Errors
/// Each place, and why it would not do.
pub(crate) fn find(
    options: &Options,
    mut visit: impl FnMut(&Path, &ConfigFiles),
) -> Result<ConfigFiles, String> {
    let read = |directory: &Path, name: &str| {
        let files = read(directory, options.secrets_dir.as_deref(), name)?;
        visit(directory, &files);
        Ok(files)
    };
    find_by(options, read)
}

fn find_by(
    options: &Options,
    mut read: impl FnMut(&Path, &str) -> Result<ConfigFiles, String>,
) -> Result<ConfigFiles, String> {
    if let Some(directory) = &options.config_dir {
        return read(directory, &directory.display().to_string());
    }
    if let Some(secrets) = &options.secrets_dir {
        // Incus' agent takes all but the certificates from where it is (P§1.1).
        return read(Path::new("."), &secrets.display().to_string());
    }
    let mut failures = Vec::new();
    let copies = COPIES.iter().map(|copy| options.root.join(copy));
    for directory in [PathBuf::from(".")].into_iter().chain(copies) {
        let name = match directory.to_str() {
            Some(".") => "the working directory".to_owned(),
            _ => directory.display().to_string(),
        };
        match read(&directory, &name) {
            Ok(files) => return Ok(files),
            Err(why) => failures.push(why),
        }
    }
    if options.command == Command::Run {
        // One that was killed here has left its mount, and the same is not mounted there twice. With the
        // lock the place is ours; `--check` has none.
        let _none = unmount(options.root.join(PLACE), UnmountFlags::DETACH);
    }
    prepare(&options.root, "virtio_pci");
    for source in Source::in_order(&options.root) {
        match source.read(&options.root, &mut read) {
            Ok(files) => return Ok(files),
            Err(why) => failures.push(format!("{}: {why}", source.name())),
        }
    }
    Err(format!("no config files found ({})", failures.join("; ")))
}

fn read(directory: &Path, secrets: Option<&Path>, name: &str) -> Result<ConfigFiles, String> {
    let file = |file: &str| {
        read_bounded(&secrets.unwrap_or(directory).join(file), LONGEST)
            .map_err(|error| format!("{name}: {file}: {error}"))
    };
    // What may be missing.
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

/// The files that say what NICs are to be called, in the order of their names.
fn nics(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut files = Vec::new();
    for entry in entries.flatten().take(MOST_NICS) {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !name.ends_with(".json") {
            continue;
        }
        match read_bounded(&entry.path(), LONGEST_NIC) {
            Ok(bytes) => files.push((name, bytes)),
            Err(error) => log::warn(format_args!("nics/{name}: {error}")),
        }
    }
    files.sort_unstable();
    files
}

/// Loads a module that may be needed.
fn prepare(root: &Path, module: &str) {
    if let Err(why) = modules::load(root, module) {
        // It may be built in; the mount will tell.
        log::debug(format_args!("{why}"));
    }
}

/// How a host offers the share.
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

    /// In this order, those first whose device is there: to load a file system that nobody needs takes
    /// as long as all the rest of the start. The disk is before those whose device is not seen.
    fn in_order(root: &Path) -> impl Iterator<Item = Self> {
        const ALL: [(Source, bool); 5] = [
            (Source::Virtiofs, true),
            (Source::Plan9, true),
            (Source::Iso, true),
            (Source::Virtiofs, false),
            (Source::Plan9, false),
        ];
        let devices = virtio_devices(root);
        let is_there = move |source| {
            // VIRTIO 1.2 §5: 26 and 9, as Linux writes them.
            let id: &[u8] = match source {
                Self::Virtiofs => b"0x001a\n",
                Self::Plan9 => b"0x0009\n",
                Self::Iso => return true,
            };
            devices.is_empty() || devices.iter().any(|seen| seen == id)
        };
        ALL.into_iter()
            .filter_map(move |(source, there)| (is_there(source) == there).then_some(source))
    }

    fn read(
        self,
        root: &Path,
        read: &mut impl FnMut(&Path, &str) -> Result<ConfigFiles, String>,
    ) -> Result<ConfigFiles, String> {
        let wanted: &[&str] = match self {
            Self::Virtiofs => &["virtiofs"],
            Self::Plan9 => &["9pnet_virtio", "9p"],
            Self::Iso => &["virtio_blk", "isofs"],
        };
        wanted.iter().for_each(|module| prepare(root, module));
        let mounted = Mounted::new(self, root)?;
        read(&mounted.0, self.name())
    }
}

/// What is on the virtio bus: each device's number, as Linux writes it.
fn virtio_devices(root: &Path) -> Vec<Vec<u8>> {
    let devices = std::fs::read_dir(root.join("sys/bus/virtio/devices"));
    let numbers = devices.into_iter().flatten().flatten();
    numbers.filter_map(|device| std::fs::read(device.path().join("device")).ok()).collect()
}

/// Incus' disk. It is a CD-ROM (P§1.2): where a SCSI bus is, its drivers may have to be loaded, and the
/// kernel looks for what is on it beside us.
fn disk(root: &Path) -> Option<PathBuf> {
    let found = iso::find(root, LABEL);
    // VIRTIO 1.2 §5: a SCSI host is 8.
    if found.is_some() || !virtio_devices(root).iter().any(|seen| seen == b"0x0008\n") {
        return found;
    }
    ["virtio_scsi", "sr_mod"].iter().for_each(|module| prepare(root, module));
    look_for(SCAN, || iso::find(root, LABEL))
}

/// A mount of ours; gone when dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(source: Source, root: &Path) -> Result<Self, String> {
        let place = root.join(PLACE);
        std::fs::create_dir_all(&place).map_err(|error| error.to_string())?;
        let flags =
            MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC;
        let result = match source {
            Source::Virtiofs => mount(TAG, &place, "virtiofs", flags, None),
            Source::Plan9 => {
                mount(TAG, &place, "9p", flags, Some(c"trans=virtio,access=0,msize=131072"))
            }
            Source::Iso => match disk(root) {
                Some(device) => mount(&device, &place, "iso9660", flags, None),
                None => Err(rustix::io::Errno::NODEV),
            },
        };
        match result {
            Ok(()) => Ok(Self(place)),
            Err(error) => {
                let _ours = std::fs::remove_dir(&place);
                Err(error.to_string())
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = unmount(&self.0, UnmountFlags::DETACH) {
            log::warn(format_args!("cannot unmount {}: {error}", self.0.display()));
        }
        let _ours = std::fs::remove_dir(&self.0);
    }
}

/// An empty directory for one test.
#[cfg(test)]
pub(crate) fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("mote-{name}-{}", std::process::id()));
    let _stale = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(root: &Path, directory: Option<&Path>) -> Options {
        let mut options = crate::options::parse([].into_iter()).unwrap();
        options.root = root.to_owned();
        options.config_dir = directory.map(Path::to_owned);
        options
    }

    #[test]
    fn files_are_found_and_what_is_missing_is_named() {
        let root = scratch("share");
        let directory = root.join("run/incus_agent");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("agent.crt"), "c").unwrap();
        let why = find(&options(&root, Some(&directory)), |_, _| panic!()).err().unwrap();
        assert!(why.contains("agent.key"), "{why}");
        std::fs::write(directory.join("agent.key"), "k").unwrap();
        std::fs::write(directory.join("server.crt"), "s").unwrap();
        let mut seen = Vec::new();
        let files = find(&options(&root, None), |place, _| seen.push(place.to_owned())).unwrap();
        assert_eq!(seen, [directory]);
        assert_eq!((files.agent_crt.as_slice(), files.agent_conf), (&b"c"[..], None));
        assert!(files.from.ends_with("run/incus_agent"));
    }

    #[test]
    fn certificates_may_be_elsewhere_and_what_may_be_missing_is_taken() {
        let root = scratch("secrets");
        let (share, secrets) = (root.join("share"), root.join("secrets"));
        std::fs::create_dir_all(share.join("nics")).unwrap();
        std::fs::create_dir_all(&secrets).unwrap();
        for name in ["agent.crt", "agent.key", "server.crt"] {
            std::fs::write(secrets.join(name), name).unwrap();
        }
        let files = [
            ("agent-mounts.json", "[]"),
            ("nics/b.json", "{}"),
            ("nics/a.json", "{}"),
            ("nics/x", ""),
        ];
        for (name, text) in files {
            std::fs::write(share.join(name), text).unwrap();
        }
        std::fs::write(share.join("nics/long.json"), vec![b' '; 5000]).unwrap();
        let mut options = options(&root, Some(&share));
        assert!(find(&options, |_, _| {}).is_err());
        options.secrets_dir = Some(secrets);
        let found = find(&options, |place, _| assert_eq!(place, share)).unwrap();
        assert_eq!(
            (found.agent_crt.as_slice(), found.mounts),
            (&b"agent.crt"[..], Some(b"[]".into()))
        );
        let names: Vec<_> = found.nics.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a.json", "b.json"]);
    }

    #[test]
    fn what_has_a_device_is_tried_first() {
        use Source::{Iso, Plan9, Virtiofs};

        let root = scratch("sources");
        let order = || Source::in_order(&root).collect::<Vec<_>>();
        assert_eq!(order(), [Virtiofs, Plan9, Iso]);
        let device = |name: &str, id: &str| {
            let directory = root.join("sys/bus/virtio/devices").join(name);
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("device"), format!("{id}\n")).unwrap();
        };
        // A serial port alone.
        device("virtio0", "0x0003");
        assert_eq!(order(), [Iso, Virtiofs, Plan9]);
        device("virtio1", "0x0009");
        assert_eq!(order(), [Plan9, Iso, Virtiofs]);
        device("virtio2", "0x001a");
        assert_eq!(order(), [Virtiofs, Plan9, Iso]);
    }

    #[test]
    fn a_disk_on_a_scsi_bus_is_waited_for() {
        let root = scratch("scsi");
        assert_eq!(disk(&root), None);
        let bus = root.join("sys/bus/virtio/devices/virtio0");
        std::fs::create_dir_all(&bus).unwrap();
        std::fs::write(bus.join("device"), "0x0008\n").unwrap();
        let late = root.join("dev/disk/by-label").join(LABEL);
        let path = late.clone();
        let scan = std::thread::spawn(move || {
            std::thread::sleep(5 * crate::clock::LOOK);
            std::fs::create_dir_all(path).unwrap();
        });
        assert_eq!(disk(&root), Some(late));
        scan.join().unwrap();
    }

    #[test]
    fn an_endless_file_is_refused() {
        let root = scratch("endless");
        std::fs::write(root.join("agent.crt"), vec![0; 65 * 1024]).unwrap();
        let why = find(&options(&root, Some(&root)), |_, _| {}).err().unwrap();
        assert!(why.contains("agent.crt"), "{why}");
    }
}
