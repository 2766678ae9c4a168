//! Directories of this machine that the guest sees.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::child;
use crate::instance::share::{self, Device};
use crate::instance::{Flavour, Instance};

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// Here.
    pub(crate) source: PathBuf,
    /// In the guest.
    pub(crate) target: String,
    /// Whether the guest may write.
    pub(crate) access: Access,
}

/// What a guest may do with one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// What carries one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Plan9,
    /// With 9p beside it.
    Virtiofs,
}

impl By {
    /// With such a program or socket, or without.
    pub(crate) fn of<T>(virtiofs: Option<T>) -> Self {
        virtiofs.map_or(Self::Plan9, |_| Self::Virtiofs)
    }
}

/// Where virtiofsd is that is in no PATH: Debian 13's and Fedora's, Debian 12's.
const VIRTIOFSD: [&str; 3] = ["/usr/libexec", "/usr/lib/virtiofsd", "/usr/lib/qemu"];

impl Share {
    /// Reads `DIR[:GUEST][:ro]`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let (text, access) = match text.strip_suffix(":ro") {
            Some(text) => (text, Access::Read),
            None => (text, Access::Write),
        };
        let (source, target) = match text.split_once(':') {
            Some((source, target)) => (source, Some(target)),
            None => (text, None),
        };
        if source.is_empty() {
            bail!("a share is DIR[:GUEST][:ro]");
        }
        let source = std::path::absolute(source)?;
        let target = match target {
            Some(target) => target.to_owned(),
            None => {
                let here = source.canonicalize().unwrap_or_else(|_| source.clone());
                here.to_str().context("the path is no text: say where in the guest")?.to_owned()
            }
        };
        if !target.starts_with('/') || target == "/" {
            bail!("{target}: a share's place in the guest is an absolute path below /");
        }
        if target.contains(':') {
            bail!("{target}: a share is DIR[:GUEST][:ro], and can be written without :ro");
        }
        Ok(Self { source, target, access })
    }

    /// Its name among an instance's devices.
    pub(crate) fn name(number: usize) -> String {
        format!("share{number}")
    }

    /// As a device, which the agent mounts. LXD's agents try virtiofs first where 9p is named, Incus' do as they are told.
    pub(crate) fn device(&self, flavour: Flavour, by: By) -> Device {
        let mut device = Device::new();
        let source = self.source.display().to_string();
        for (key, value) in [("type", "disk"), ("path", &self.target), ("source", &source)] {
            device.insert(key.into(), value.to_owned());
        }
        if self.access == Access::Read {
            device.insert("readonly".into(), "true".into());
        }
        if flavour != Flavour::Incus || by == By::Plan9 {
            device.insert("io.bus".into(), "9p".into());
        }
        device
    }

    /// QEMU's arguments for it. By 9p the same tag is there again: an agent tries virtiofs first.
    pub(crate) fn arguments(
        &self,
        number: usize,
        instance: &Instance,
        socket: Option<&Path>,
    ) -> Vec<String> {
        let device = self.device(instance.flavour, By::of(socket));
        let tag = share::tag(instance.flavour, &Self::name(number), &device);
        let escaped = |path: &Path| path.display().to_string().replace(',', ",,");
        let mut arguments = Vec::new();
        if let Some(socket) = socket {
            arguments.extend([
                "-chardev".to_owned(),
                format!("socket,id=fs{number},path={}", escaped(socket)),
                "-device".to_owned(),
                format!("vhost-user-fs-pci,chardev=fs{number},tag={tag}"),
            ]);
        }
        let readonly = if self.access == Access::Read { ",readonly=on" } else { "" };
        arguments.extend([
            "-fsdev".to_owned(),
            format!(
                "local,id=ninep{number},path={},security_model=none,multidevs=remap{readonly}",
                escaped(&self.source)
            ),
            "-device".to_owned(),
            format!("virtio-9p-pci,fsdev=ninep{number},mount_tag={tag}"),
        ]);
        arguments
    }
}

/// The program for virtiofs, if there is one that this user can run.
pub(crate) fn virtiofsd() -> Option<PathBuf> {
    let program = std::env::var_os("MOTE_HOST_VIRTIOFSD").map(PathBuf::from);
    let found = child::find(&program.unwrap_or_else(|| "virtiofsd".into()), &VIRTIOFSD)?;
    // QEMU's own needs root's rights.
    (rustix::process::geteuid().is_root() || !is_qemus(&found)).then_some(found)
}

fn is_qemus(program: &Path) -> bool {
    program.starts_with("/usr/lib/qemu")
}

/// Its arguments.
pub(crate) fn virtiofsd_arguments(program: &Path, share: &Share, socket: &Path) -> Vec<String> {
    let socket = format!("--socket-path={}", socket.display());
    let source = share.source.display();
    if is_qemus(program) {
        let source = format!("source={source}");
        return [&socket, "-o", &source, "-o", "sandbox=chroot"].map(String::from).into();
    }
    let sandbox = if rustix::process::geteuid().is_root() { "chroot" } else { "none" };
    let mut arguments =
        vec![socket, format!("--shared-dir={source}"), format!("--sandbox={sandbox}")];
    if share.access == Access::Read {
        arguments.push("--readonly".into());
    }
    arguments
}

/// How a path is mounted, by the guest's list of mounts.
pub(crate) fn mounted<'a>(mounts: &'a str, target: &str) -> Option<&'a str> {
    // Spaces are written as octal there.
    let target = target.trim_end_matches('/').replace('\\', "\\134").replace(' ', "\\040");
    let found = mounts.lines().rev().map(|line| line.split(' ').collect::<Vec<_>>());
    let found = found.filter(|words| words.get(1) == Some(&target.as_str()));
    found.filter_map(|words| words.get(2).copied()).find(|kind| matches!(*kind, "virtiofs" | "9p"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_where_it_is_said_to_be() {
        let share = Share::parse("/a b:/src:ro").unwrap();
        assert_eq!((share.source, share.target), ("/a b".into(), "/src".into()));
        assert_eq!(share.access, Access::Read);
        let share = Share::parse("/tmp").unwrap();
        assert_eq!((share.target.as_str(), share.access), ("/tmp", Access::Write));
        for text in ["", ":/x", "/a:x", "/a:/", "/:ro", "/a:/b:rw"] {
            assert!(Share::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_guests_list_of_mounts_says_how_it_is_mounted() {
        let list = "proc /proc proc rw 0 0\nlxd_share0 /a\\040b virtiofs rw 0 0\nx /c 9p rw 0 0\n\
                    tmpfs /d tmpfs rw 0 0\n";
        assert_eq!(mounted(list, "/a b"), Some("virtiofs"));
        assert_eq!(mounted(list, "/c/"), Some("9p"));
        assert_eq!((mounted(list, "/d"), mounted(list, "/e")), (None, None));
    }
}
