//! Directories of this machine that the guest sees.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::fs::{StatVfsMountFlags, statvfs};

use super::child::{self, Helper};
use mote_client::instance::share::{self, Device};
use mote_client::{Flavour, Instance};
use mote_vm::recipe::value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    pub(crate) source: PathBuf,
    /// Path in the guest.
    pub(crate) target: String,
    pub(crate) read_only: bool,
    /// The virtiofs server, if usable.
    pub(crate) virtiofs: Option<Virtiofs>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Virtiofs {
    program: PathBuf,
    /// Whether a mount in virtiofsd's namespace keeps the guest from writing, because the program
    /// has no `--readonly`. The guest could ignore mount options of its own.
    mounts: bool,
}

/// Directories of virtiofsd outside PATH: Debian 13 and Fedora; Debian 12.
const VIRTIOFSD: [&str; 3] = ["/usr/libexec", "/usr/lib/virtiofsd", "/usr/lib/qemu"];

impl Share {
    /// Parses `DIR[:GUEST][:ro]`. DIR may contain colons: it is the longest directory that exists.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let (text, read_only) = text.strip_suffix(":ro").map_or((text, false), |text| (text, true));
        let colons = text.rmatch_indices(":/").map(|(at, _)| text.split_at(at));
        let divided = colons.map(|(source, target)| (source, Some(&target[1..])));
        let mut all = std::iter::once((text, None)).chain(divided.clone());
        let is_there = |(source, _): &(&str, _)| Path::new(source).is_dir();
        let found = all.find(is_there).or_else(|| divided.last());
        if found.is_none() && text.contains(':') || text.is_empty() {
            bail!("a share is DIR[:GUEST][:ro], where GUEST is an absolute path");
        }
        let (source, target) = found.unwrap_or((text, None));
        // virtiofsd and QEMU refuse links.
        let absolute = std::path::absolute(source)?;
        let source = absolute.canonicalize().unwrap_or(absolute);
        if let Some(target) = target.filter(|target| target.contains(':')) {
            bail!("{target}: a share is DIR[:GUEST][:ro]; without :ro it is writable");
        }
        let here = || source.to_str().map(str::to_owned);
        let target = target.map(str::to_owned).or_else(here);
        let target = target.context("the path is not UTF-8: give the path in the guest")?;
        if !target.starts_with('/') || target == "/" {
            bail!("{target}: a share's path in the guest must be absolute and below /");
        }
        Ok(Self { source, target, read_only, virtiofs: None })
    }

    /// Returns whether the guest can create a setuid file that gives another user root access: the
    /// guest writes as root, the file system honours setuid, and others may enter the directory.
    pub(crate) fn is_exposed(&self) -> bool {
        let can_enter = |path: &Path| path.metadata().is_ok_and(|about| about.mode() & 0o001 != 0);
        let is_nosuid = statvfs(&self.source)
            .is_ok_and(|about| about.f_flag.contains(StatVfsMountFlags::NOSUID));
        !self.read_only
            && rustix::process::geteuid().is_root()
            && !is_nosuid
            && self.source.ancestors().all(can_enter)
    }

    pub(crate) fn name(number: usize) -> String {
        format!("share{number}")
    }

    /// Returns the device that the agent mounts. LXD's agents try virtiofs first even if 9p is
    /// named; Incus' agents do not.
    pub(crate) fn device(&self, flavour: Flavour) -> Device {
        let mut device = Device::new();
        let source = self.source.display().to_string();
        for (key, value) in [("type", "disk"), ("path", &self.target), ("source", &source)] {
            device.insert(key.into(), value.to_owned());
        }
        if self.read_only {
            device.insert("readonly".into(), "true".into());
        }
        if flavour != Flavour::Incus || self.virtiofs.is_none() {
            device.insert("io.bus".into(), "9p".into());
        }
        device
    }

    /// Returns QEMU's arguments. 9p gets the same tag as virtiofs, which an agent tries first.
    pub(crate) fn arguments(
        &self,
        number: usize,
        instance: &Instance,
        socket: &Path,
    ) -> Vec<String> {
        let device = self.device(instance.flavour);
        let tag = share::tag(instance.flavour, &Self::name(number), &device);
        let mut arguments = Vec::new();
        if self.virtiofs.is_some() {
            arguments.extend([
                "-chardev".to_owned(),
                format!("socket,id=fs{number},path={}", value(socket)),
                "-device".to_owned(),
                format!("vhost-user-fs-pci,chardev=fs{number},tag={tag}"),
            ]);
        }
        let access = if self.read_only { "remap,readonly=on" } else { "remap" };
        let files = format!("path={},security_model=none,multidevs={access}", value(&self.source));
        arguments.extend([
            "-fsdev".to_owned(),
            format!("local,id=ninep{number},{files}"),
            "-device".to_owned(),
            format!("virtio-9p-pci,fsdev=ninep{number},mount_tag={tag}"),
        ]);
        arguments
    }
}

pub(crate) fn virtiofsd() -> Option<PathBuf> {
    let program = std::env::var_os("MOTE_HOST_VIRTIOFSD").map(PathBuf::from);
    let found = child::find(&program.unwrap_or_else(|| "virtiofsd".into()), &VIRTIOFSD)?;
    // QEMU 7's virtiofsd needs root.
    (rustix::process::geteuid().is_root() || !is_qemus(&found)).then_some(found)
}

fn is_qemus(program: &Path) -> bool {
    program.starts_with("/usr/lib/qemu")
}

impl Virtiofs {
    /// Returns how that program serves the share; `None` if it cannot enforce a read-only share.
    pub(crate) fn of(program: &Path, share: &Share) -> Option<Self> {
        let has_option = || {
            let help = Command::new(program).arg("--help").stderr(Stdio::null()).output();
            help.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("--readonly"))
        };
        let mounts = share.read_only && (is_qemus(program) || !has_option());
        let can_serve = !mounts || child::can_mount_read_only(&share.source);
        can_serve.then(|| Self { program: program.to_owned(), mounts })
    }

    /// Returns the process, which is started in the share.
    pub(crate) fn helper(&self, share: &Share, socket: PathBuf) -> Helper {
        let mut arguments = Vec::new();
        let is_root = rustix::process::geteuid().is_root();
        let source = share.source.display().to_string();
        if is_qemus(&self.program) {
            // Commas separate the options unless they are escaped. A relative path would be
            // resolved below /, where the process goes first.
            let source = source.replace('\\', "\\\\").replace(',', "\\,");
            // A guest must not create device nodes on this machine.
            let options = [&format!("source={source}"), "sandbox=chroot", "modcaps=-mknod"];
            arguments.extend(options.iter().flat_map(|option| ["-o", option]).map(String::from));
        } else {
            let sandbox = if is_root { "chroot" } else { "none" };
            arguments.extend([format!("--shared-dir={source}"), format!("--sandbox={sandbox}")]);
            if is_root {
                arguments.push("--modcaps=-mknod".into());
            }
        }
        if share.read_only && !self.mounts {
            arguments.push("--readonly".into());
        }
        let (program, words) = if self.mounts {
            child::read_only(&self.program, &socket)
        } else {
            (self.program.clone(), vec![format!("--socket-path={}", socket.display())])
        };
        let arguments = [words, arguments].concat();
        let directory = share.source.clone();
        Helper { program, arguments, socket, lock: PathBuf::new(), directory }
    }
}

pub(crate) fn mounted<'a>(mounts: &'a str, target: &str) -> Option<&'a str> {
    // The list of mounts has octal escapes for spaces.
    let target = target.trim_end_matches('/').replace('\\', "\\134").replace(' ', "\\040");
    let found = mounts.lines().rev().map(|line| line.split(' ').collect::<Vec<_>>());
    let found = found.filter(|words| words.get(1) == Some(&target.as_str()));
    found.filter_map(|words| words.get(2).copied()).find(|kind| matches!(*kind, "virtiofs" | "9p"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_has_the_requested_path() {
        let share = Share::parse("/a b:/src:ro").unwrap();
        assert_eq!((share.source, share.target), ("/a b".into(), "/src".into()));
        assert!(share.read_only);
        let share = Share::parse("/tmp").unwrap();
        assert_eq!((share.target.as_str(), share.read_only), ("/tmp", false));
        for text in ["", ":/x", "/a:x", "/a:/", "/:ro", "/a:/b:rw", "/absent:/m:/n"] {
            assert!(Share::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn reads_mount_options_from_the_guests_list() {
        let list = "proc /proc proc rw 0 0\nlxd_share0 /a\\040b virtiofs rw 0 0\nx /c 9p rw 0 0\n\
                    tmpfs /d tmpfs rw 0 0\n";
        assert_eq!(mounted(list, "/a b"), Some("virtiofs"));
        assert_eq!(mounted(list, "/c/"), Some("9p"));
        assert_eq!((mounted(list, "/d"), mounted(list, "/e")), (None, None));
    }

    #[test]
    fn detects_shares_that_expose_root_files_to_other_users() {
        use std::fs::{Permissions, set_permissions};
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let of = |mode, access: &str| {
            set_permissions(directory.path(), Permissions::from_mode(mode)).unwrap();
            Share::parse(&format!("{}:/m{access}", directory.path().display()))
                .unwrap()
                .is_exposed()
        };
        let nosuid = statvfs(directory.path()).unwrap().f_flag.contains(StatVfsMountFlags::NOSUID);
        assert_eq!(of(0o755, ""), rustix::process::geteuid().is_root() && !nosuid);
        assert!(!of(0o700, "") && !of(0o755, ":ro"));
    }
}
