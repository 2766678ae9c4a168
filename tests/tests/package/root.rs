//! A Debian root with an init system, and commands in it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use mote_tests::Scratch;

use crate::built::{run, source};

pub(crate) const SYSTEMS: [&str; 4] = ["systemd", "sysvinit", "openrc", "runit"];

/// Mounts the file systems that programs need and runs the command. The mounts are in a mount
/// namespace that ends with its processes. Outside, the root contains only plain files, so removing
/// it is safe. `/dev` has only some devices, because an agent creates its socket there.
const INSIDE: &str = r#"
set -eu
root="$1"; shift
mount --rbind "$root" "$root"
mount -t tmpfs -o mode=755 dev "$root/dev"
for device in null zero full random urandom tty; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount -t tmpfs -o mode=755 run "$root/run"
exec chroot "$root" /usr/bin/env -i "$@"
"#;

#[derive(Debug)]
pub(crate) struct Root(pub(crate) Scratch);

impl Root {
    pub(crate) fn new(system: &str) -> Self {
        let archive = run(Command::new("image/packages/root").arg(system).current_dir(source()));
        let scratch = Scratch::new();
        let mut tar = Command::new("tar");
        run(tar.arg("--zstd").arg("-xf").arg(archive.trim()).arg("-C").arg(&scratch.0));
        Self(scratch)
    }

    /// Returns a command in the root. With `alone` it is process 1 of its own process namespace, as
    /// in a container.
    pub(crate) fn command(&self, alone: bool, words: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private"]);
        if alone {
            command.args(["--pid", "--fork", "--kill-child"]);
        }
        command.args(["bash", "-c", INSIDE, "-"]).arg(&self.0.0);
        command.args(["HOME=/root", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"]);
        command.arg("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.args(words).stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> String {
        run(&mut self.command(false, words))
    }

    /// Copies a file to `/srv`. Returns its path in the root.
    pub(crate) fn take(&self, file: &Path) -> String {
        let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
        fs::copy(file, self.0.0.join("srv").join(name)).expect("a copy");
        format!("/srv/{name}")
    }

    pub(crate) fn program(&self, path: &str, text: &str) {
        let path = self.0.0.join(path);
        // It may be a link that leads out of the root.
        let _old = fs::remove_file(&path);
        mote_tests::program(path, text);
    }

    /// Lists each path except dpkg's and runit's own state, with type, mode and link target.
    pub(crate) fn files(&self) -> BTreeSet<String> {
        let mut find = Command::new("find");
        find.arg(&self.0.0).args(["-mindepth", "1", "-printf", "/%P %y %m %l\n"]);
        let own =
            |line: &&str| !["/var/log/dpkg.log ", "/srv/"].iter().any(|own| line.starts_with(own));
        run(&mut find).lines().filter(own).map(str::to_owned).collect()
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        fs::symlink_metadata(self.0.0.join(path.trim_start_matches('/'))).is_ok()
    }

    pub(crate) fn processes(&self) -> Vec<String> {
        let entries = fs::read_dir("/proc").expect("/proc").flatten();
        let here =
            |path: &Path| fs::read_link(path.join("root")).is_ok_and(|root| root == self.0.0);
        let paths = entries.map(|entry| entry.path()).filter(|path| here(path));
        let name = |path: &Path| fs::read_to_string(path.join("cmdline")).unwrap_or_default();
        paths.map(|path| name(&path)).collect()
    }
}
