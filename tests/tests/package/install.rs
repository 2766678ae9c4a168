//! The agent's packages in roots where no init system runs, as when an image is built: enabled, not
//! started, and removed without a trace.

use crate::contents::{NEWER, PACKAGES, deb, file, newer, run, source, tarball};
use mote_tests::prelude::*;

fn enabled(system: &str) -> &'static str {
    match system {
        "systemd" => "/etc/systemd/system/multi-user.target.wants/mote-agent.service",
        "openrc" => "/etc/runlevels/sysinit/mote-agent",
        "runit" => "/etc/runit/runsvdir/default/mote-agent",
        _ => "/etc/rcS.d/S",
    }
}

fn is_enabled(root: &Root, link: &str) -> bool {
    let files = root.files();
    let mut links =
        files.iter().filter(|line| line.starts_with(link) && line.contains("mote-agent"));
    links.next().is_some_and(|line| {
        let (path, _) = line.split_once(' ').expect("a path");
        root.run(&["readlink", "-e", path]).contains("mote-agent")
    })
}

fn assert_idle(root: &Root) {
    let output = root.command(false, &["mote-agent", "--check"]).output().expect("the agent");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "not a VM: {text}");
    assert!(text.contains("missing  port: this VM has no virtio-serial device"), "{text}");
    assert!(text.contains("build: with everything"), "{text}");
    assert_eq!(root.processes(), Vec::<String>::new());
    for trace in ["/run/mote", "/run/mote-agent.pid", "/var/log/mote-agent.log"] {
        assert!(!root.has(trace), "{trace}");
    }
}

fn version(root: &Root) -> String {
    root.run(&["dpkg-query", "-Wf", "${Version}", "mote-agent"])
}

fn lives_and_dies(system: &str) {
    let root = Root::new(system);
    let (package, above) = (root.take(&deb()), root.take(&newer()));
    let before = root.files();
    root.run(&["dpkg", "-i", &package]);
    assert!(is_enabled(&root, enabled(system)), "{system}");
    assert_idle(&root);
    // In this root process 1 is dpkg, not an init system.
    run(&mut root.command(true, &["dpkg", "-i", &above]));
    assert_eq!(version(&root), NEWER);
    assert!(is_enabled(&root, enabled(system)), "{system}");
    assert_idle(&root);

    root.run(&["dpkg", "-r", "mote-agent"]);
    let left: Vec<_> = root.files().difference(&before).cloned().collect();
    for line in &left {
        let kept =
            ["/etc/", "/var/lib/dpkg/info/mote-agent.", "/var/lib/systemd/deb-systemd-helper-"];
        assert!(kept.iter().any(|kept| line.starts_with(kept)), "{system}: {line}");
    }
    assert!(!root.has("/etc/runit/runsvdir/default/mote-agent"), "runit would keep trying");
    root.run(&["dpkg", "-P", "mote-agent"]);
    assert_eq!(root.files(), before, "{system}");
}

#[test]
fn the_debian_package_on_each_init_system() {
    SYSTEMS.into_iter().for_each(lives_and_dies);
}

/// Uses a Debian root with systemd's own tools: Debian mirrors contain no .rpm distribution.
#[test]
fn the_rpm_on_systemd() {
    let root = Root::new("systemd");
    let before = root.files();
    let package = file(&PACKAGES.first, "mote-agent-", ".x86_64.rpm");
    let rpm = |words: &[&str]| {
        let mut command = Command::new("rpm");
        command.args(["--force-debian", "--nosignature", "--root"]).arg(&root.0.0).args(words);
        run(&mut command)
    };
    rpm(&["--nodeps", "-i", package.to_str().expect("a path")]);
    assert!(is_enabled(&root, enabled("systemd")));
    assert_idle(&root);
    assert_eq!(rpm(&["-q", "--whatprovides", "incus-agent"]), rpm(&["-q", "mote-agent"]));
    rpm(&["--nodeps", "-U", "--replacepkgs", package.to_str().expect("a path")]);
    assert!(is_enabled(&root, enabled("systemd")));
    rpm(&["-e", "mote-agent"]);
    let files = root.files();
    let left: Vec<_> = files.difference(&before).filter(|line| !line.contains(" d ")).collect();
    assert!(
        left.iter().all(|line| line.starts_with("/var/lib/rpm/") || line.contains("/.rpmdb")),
        "{left:?}"
    );
}

/// Process 1 identifies OpenWrt's root. Functions that replace procd's record its calls.
#[test]
fn the_tarball_has_a_service_for_openwrt() {
    let (scratch, root) = (Scratch::new(), Scratch::new());
    put(root.0.join("sbin/procd"), "");
    let install = tarball(&scratch).join("install");
    contains(run(Command::new(install).arg("--root").arg(&root.0)), &["enabled for procd"]);
    let service = root.0.join("etc/rc.d/S01mote-agent");
    let words = "for word in open_instance set_param close_instance send_signal; do eval \"procd_$word() { echo $word \\$*; }\"; done";
    let script = format!("{words}; . {}; start_service; reload_service", service.display());
    let said = run(Command::new("dash").args(["-euc", &script]));
    assert_eq!(
        said,
        "open_instance\nset_param command /usr/sbin/mote-agent\nset_param respawn 3600 1 0\nset_param stdout 1\n\
         set_param stderr 1\nclose_instance\nsend_signal mote-agent\n"
    );
}

#[test]
fn a_disabled_service_stays_disabled() {
    let root = Root::new("systemd");
    let (package, above) = (root.take(&deb()), root.take(&newer()));
    root.run(&["dpkg", "-i", &package]);
    root.run(&["systemctl", "disable", "mote-agent.service"]);
    assert!(!is_enabled(&root, enabled("systemd")));
    root.run(&["dpkg", "-i", &above]);
    assert!(!is_enabled(&root, enabled("systemd")));
}

#[test]
fn the_tarball_finds_the_init_system() {
    let scratch = Scratch::new();
    let folder = tarball(&scratch);
    for system in SYSTEMS {
        let root = Root::new(system);
        let before = root.files();
        let install = |script: &str| {
            let mut command = Command::new(folder.join(script));
            run(command.arg("--root").arg(&root.0.0))
        };
        contains(install("install"), &[&format!("enabled for {system}")]);
        assert!(is_enabled(&root, enabled(system)), "{system}");
        assert_idle(&root);
        // A second installation is an upgrade.
        install("install");
        install("uninstall");
        let without_folders = |files: BTreeSet<String>| -> Vec<String> {
            files.into_iter().filter(|line| !line.contains(" d ")).collect()
        };
        assert_eq!(without_folders(root.files()), without_folders(before), "{system}");
    }
}

#[test]
fn the_tarballs_line_for_other_init_systems_starts_the_agent() {
    let (scratch, root) = (Scratch::new(), Scratch::new());
    let said = run(Command::new(tarball(&scratch).join("install")).arg("--root").arg(&root.0));
    let line = said.lines().find_map(|line| line.strip_prefix("::respawn:/"));
    assert!(root.0.join(line.unwrap_or_else(|| panic!("{said}"))).is_file(), "{said}");
}

#[test]
fn the_tarball_does_not_replace_a_package() {
    let (scratch, root) = (Scratch::new(), Root::new("systemd"));
    let folder = tarball(&scratch);
    root.run(&["dpkg", "-i", &root.take(&deb())]);
    let mut command = Command::new(folder.join("install"));
    let output = command.arg("--root").arg(&root.0.0).output().expect("the installer");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("the package mote-agent is installed")
    );
    assert!(!Path::new(&root.0.0.join("etc/systemd/system/mote-agent.service")).exists());
}

pub(crate) const SYSTEMS: [&str; 4] = ["systemd", "sysvinit", "openrc", "runit"];

/// Mounts the file systems that programs need and runs the command. The mounts are in a mount
/// namespace that ends with its processes. Outside, the root contains only plain files, so removing
/// it is safe. `/dev` has only some devices, because an agent creates its socket there.
const INSIDE: &str = include_str!("inside");

pub(crate) struct Root(pub(crate) Scratch);

impl Root {
    pub(crate) fn new(system: &str) -> Self {
        let archive = run(Command::new("image/packages/root").arg(system).current_dir(source()));
        let scratch = Scratch::new();
        let mut tar = Command::new("tar");
        run(tar.arg("--zstd").arg("-xf").arg(archive.trim()).arg("-C").arg(&scratch.0));
        Self(scratch)
    }

    /// Returns a command in the root. With `alone` it is process 1, as in a container.
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

    pub(crate) fn take(&self, file: &Path) -> String {
        let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
        fs::copy(file, self.0.0.join("srv").join(name)).expect("a copy");
        format!("/srv/{name}")
    }

    pub(crate) fn program(&self, path: &str, text: &str) {
        let path = self.0.0.join(path);
        // The old file may be a link that leads out of the root.
        let _old = fs::remove_file(&path);
        program(path, text);
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
