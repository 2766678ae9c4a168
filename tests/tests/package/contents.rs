//! Contents of the packages.

use mote_tests::prelude::*;

/// Returns the path and mode of each file that the Debian package must contain.
fn files() -> impl Iterator<Item = (&'static str, &'static str)> {
    include_str!("contents.txt").lines().filter_map(|line| line.split_once(' '))
}

/// Returns the files that the .rpm must contain: those for systemd only, with licences and zsh's
/// completion in the places that are usual for an .rpm.
fn in_rpm() -> Vec<String> {
    let others = "/etc/ /usr/lib/initcpio/ /usr/lib/mote-agent/respawn /usr/share/initramfs-tools/ \
        /usr/share/lintian/ /usr/share/doc/mote-agent/changelog";
    let is_own = |path: &&str| !others.split(' ').any(|begin| path.starts_with(begin));
    let own = |path: &str| {
        let path = path.replace("doc/mote-agent/copyright", "licenses/mote-agent/copyright");
        let path = path.replace("doc/mote-agent/third-party", "licenses/mote-agent/third-party");
        path.replace("vendor-completions/_", "site-functions/_")
    };
    let mut files: Vec<_> = files().map(|(path, _)| path).filter(is_own).map(own).collect();
    files.sort_unstable();
    files
}

/// Returns mode and owner by path, from tar's list: `MODE OWNER/GROUP SIZE DATE TIME PATH`.
fn listed(list: &str) -> BTreeMap<String, (String, String)> {
    let files = list.lines().filter(|line| !line.starts_with('d')).map(|line| {
        let mut words = line.split_whitespace();
        let (mode, owner) = (words.next().expect("a mode"), words.next().expect("an owner"));
        let path = words.nth(3).expect("a path").trim_start_matches('.');
        (path.to_owned(), (mode.to_owned(), owner.to_owned()))
    });
    files.collect()
}

fn has_these_files_and_no_others(deb: &Path) {
    let list = run(Command::new("dpkg-deb").arg("-c").arg(deb));
    let wanted = files().map(|(path, mode)| (path.to_owned(), (mode.to_owned(), "0/0".to_owned())));
    assert_eq!(listed(&list), wanted.collect());
    for folder in list.lines().filter(|line| line.starts_with('d')) {
        assert!(folder.starts_with("drwxr-xr-x 0/0 "), "{folder}");
    }
    let conffiles = run(Command::new("dpkg-deb").arg("-I").arg(deb).arg("conffiles"));
    let mut conffiles: Vec<_> = conffiles.lines().collect();
    conffiles.sort_unstable();
    let etc = files().map(|(path, _)| path).filter(|path| path.starts_with("/etc"));
    assert_eq!(conffiles, etc.collect::<Vec<_>>());
}

#[test]
fn the_debian_package_has_exactly_these_files() {
    has_these_files_and_no_others(&deb());
}

/// Returns a Debian package's maintainer scripts and control fields, without architecture and size.
fn control(deb: &Path) -> String {
    let script =
        "dpkg-deb --ctrl-tarfile \"$0\" | tar -xOf - ./control ./postinst ./postrm ./prerm |
        grep -v '^Architecture: \\|^Installed-Size: '";
    run(Command::new("bash").args(["-o", "pipefail", "-c", script]).arg(deb))
}

#[test]
fn packages_of_all_architectures_differ_only_in_programs() {
    for (other, [made, _]) in MACHINES[1..].iter().zip(&PACKAGES.others) {
        are_those_of_x86_64_with_another_program(other, made);
    }
}

fn are_those_of_x86_64_with_another_program(other: &Machine, made: &Path) {
    let Machine { name, debian, elf, .. } = *other;
    let its = file(made, "mote-agent_", &format!("_{debian}.deb"));
    has_these_files_and_no_others(&its);
    let said = run(Command::new("dpkg-deb").arg("-f").arg(&its).arg("Architecture"));
    assert_eq!(said.trim(), debian);
    assert_eq!(control(&its), control(&deb()));
    let rpm = file(made, "mote-agent-", &format!(".{name}.rpm"));
    let ask = |what: &[&str]| {
        run(Command::new("rpm").args(["-qp", "--nosignature"]).args(what).arg(&rpm))
    };
    assert_eq!(ask(&["-l"]).lines().collect::<Vec<_>>(), in_rpm());
    assert_eq!(ask(&["--qf", "%{ARCH}"]), name);
    let (scratch, second) = (Scratch::new(), Scratch::new());
    let folder = unpacked(made, &scratch);
    let different =
        Command::new("diff").arg("-rq").args([&folder, &tarball(&second)]).output().expect("diff");
    let different = String::from_utf8_lossy(&different.stdout).into_owned();
    // Their crates differ, because the assembler's build needs more of them.
    for line in different.lines() {
        let name = ["/mote-agent and ", "/copyright and ", "/third-party.gz and "];
        assert!(name.iter().any(|name| line.contains(name)), "{line}");
    }
    let packed = Scratch::new();
    run(Command::new("dpkg-deb").arg("-x").arg(&its).arg(&packed.0));
    let programs = [folder.join("mote-agent"), packed.0.join("usr/sbin/mote-agent")];
    let programs = programs.map(|path| fs::read(path).expect("the agent"));
    assert!(programs[0] == programs[1]);
    assert_eq!(programs[0].get(18..20), Some(&[elf, 0][..]));
}

#[test]
fn the_debian_package_replaces_the_go_agents() {
    for field in ["Conflicts", "Replaces"] {
        let names = run(Command::new("dpkg-deb").arg("-f").arg(deb()).arg(field));
        assert_eq!(names.trim(), "incus-agent, lxd-agent, lxd-agent-loader", "{field}");
    }
    let names = run(Command::new("dpkg-deb").arg("-f").arg(deb()).arg("Provides"));
    assert_eq!(names.trim(), "incus-agent, lxd-agent");
}

#[test]
fn lintian_reports_nothing() {
    let ours = [(&PACKAGES.first, "mote-agent_"), (&PACKAGES.first, "mote-host_")];
    let others = PACKAGES.others.iter().map(|[made, _]| (made, "mote-agent_"));
    for (directory, begin) in ours.into_iter().chain(others) {
        let package = file(directory, begin, ".deb");
        let mut lintian = Command::new("lintian");
        lintian.args(["--allow-root", "--fail-on", "error,warning"]).arg(&package);
        assert_eq!(run(&mut lintian), "", "{}", package.display());
    }
}

#[test]
fn the_same_commit_gives_the_same_bytes() {
    let begins = [
        ("mote-agent_", ".deb"),
        ("mote-agent-", ".tar.gz"),
        ("mote-agent-", ".rpm"),
        ("mote-host_", ".deb"),
    ];
    let here = begins.map(|names| (&PACKAGES.first, &PACKAGES.second, names));
    // mote-host is not built for other architectures.
    let there = PACKAGES
        .others
        .iter()
        .flat_map(|[made, again]| begins[..3].iter().map(move |names| (made, again, *names)));
    for (first, second, (begin, end)) in here.into_iter().chain(there) {
        let read = |directory| fs::read(file(directory, begin, end)).expect("a package");
        let (first, second) = (read(first), read(second));
        assert!(first.len() > 300_000);
        assert!(first == second, "{begin}*{end} differs");
    }
}

#[test]
fn the_rpm_has_exactly_these_files() {
    let rpm = file(&PACKAGES.first, "mote-agent-", ".rpm");
    let ask = |what: &str| run(Command::new("rpm").args(["-qp", "--nosignature", what]).arg(&rpm));
    assert_eq!(ask("-l").lines().collect::<Vec<_>>(), in_rpm());
    for line in ask("-lv").lines() {
        let mut words = line.split_whitespace();
        let program = ["/usr/sbin/mote-agent", "/options", "when-idle", "in-initramfs", ".sh"]
            .iter()
            .any(|end| line.ends_with(end));
        let mode = if program { "-rwxr-xr-x" } else { "-rw-r--r--" };
        assert_eq!(words.next(), Some(mode), "{line}");
        assert_eq!(words.skip(1).take(2).collect::<Vec<_>>(), ["root", "root"], "{line}");
    }
    for what in ["--conflicts", "--obsoletes"] {
        assert_eq!(ask(what).trim(), "incus-agent\nlxd-agent", "{what}");
    }
}

#[test]
fn program_and_package_have_the_same_version() {
    let scratch = Scratch::new();
    run(Command::new("dpkg-deb").arg("-x").arg(newer()).arg(&scratch.0));
    let said = run(Command::new(scratch.0.join("usr/sbin/mote-agent")).arg("--version"));
    assert!(said.starts_with(&format!("mote-agent {NEWER} (")), "{said}");
    assert_eq!(run(Command::new("dpkg-deb").arg("-f").arg(newer()).arg("Version")).trim(), NEWER);
    for (file, line) in [
        ("man/man8/mote-agent.8.gz", format!("\"mote {NEWER}\"\n")),
        ("doc/mote-agent/changelog.gz", format!("mote-agent ({NEWER}) ")),
    ] {
        let text = run(Command::new("zcat").arg(scratch.0.join("usr/share").join(file)));
        assert!(text.contains(&line), "{file}: {text}");
    }
}

// Builds the packages once for all tests of this program.

pub(crate) const NEWER: &str = "9.0.0";

pub(crate) struct Machine {
    target: &'static str,
    /// Name in tarballs and .rpm.
    pub(crate) name: &'static str,
    /// Name in Debian and in OCI images.
    pub(crate) debian: &'static str,
    pub(crate) systemd: &'static str,
    /// Number in ELF.
    pub(crate) elf: u8,
}

pub(crate) const MACHINES: [Machine; 3] = [
    Machine {
        target: "x86_64-unknown-linux-musl",
        name: "x86_64",
        debian: "amd64",
        systemd: "x86-64",
        elf: 62,
    },
    Machine {
        target: "aarch64-unknown-linux-musl",
        name: "aarch64",
        debian: "arm64",
        systemd: "arm64",
        elf: 183,
    },
    Machine {
        target: "riscv64gc-unknown-linux-musl",
        name: "riscv64",
        debian: "riscv64",
        systemd: "riscv64",
        elf: 243,
    },
];

/// Directories with the packages of this machine and of others.
pub(crate) struct Packages {
    pub(crate) first: PathBuf,
    /// The packages of `first`, built again in another directory at another time.
    pub(crate) second: PathBuf,
    pub(crate) newer: PathBuf,
    /// The packages of all [`MACHINES`] except the first, each built twice.
    pub(crate) others: Vec<[PathBuf; 2]>,
}

/// Changes settings that must not affect a reproducible build.
pub(crate) const ELSEWHERE: &str = "umask 077; export TZ=Asia/Tokyo LANG=C.UTF-8; ";

pub(crate) static PACKAGES: LazyLock<Packages> = LazyLock::new(|| {
    let newer = format!("scripts/package --version {NEWER} deb");
    // The last build stays in `target/package`, so it must be the one with the tree's own version.
    let others = MACHINES[1..].iter().map(|Machine { target, name, .. }| {
        let script = format!("scripts/package --target {target}");
        let second = make(&format!("{name}-second"), &format!("{ELSEWHERE}{script}"));
        [make(name, &script), second]
    });
    let others = others.collect();
    let second = make("second", &format!("{ELSEWHERE}scripts/package"));
    Packages {
        newer: make("newer", &newer),
        first: make("first", "scripts/package"),
        second,
        others,
    }
});

fn make(name: &str, script: &str) -> PathBuf {
    let to = source().join("target/package/tested").join(name);
    let _old = fs::remove_dir_all(&to);
    fs::create_dir_all(&to).expect("a directory");
    let made = run(shell().args(["-c", script]).current_dir(source()));
    assert!(!made.is_empty(), "nothing was made");
    for path in made.lines().map(Path::new) {
        fs::copy(path, to.join(path.file_name().expect("a name"))).expect("a copy");
    }
    to
}

/// Returns a shell without cargo's variables, which would make build scripts rebuild everything.
fn shell() -> Command {
    let mut shell = Command::new("/bin/bash");
    let own = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    let names = std::env::vars().map(|(name, _)| name).filter(|name| own(name));
    names.for_each(|name| {
        shell.env_remove(name);
    });
    shell.env_remove("CARGO").env_remove("LD_LIBRARY_PATH");
    shell
}

pub(crate) fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("a path")
}

pub(crate) fn file(directory: &Path, begin: &str, end: &str) -> PathBuf {
    let files = fs::read_dir(directory).expect("packages").map(|entry| entry.expect("one").path());
    let fits = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with(begin) && name.ends_with(end)
    };
    let mut files = files.filter(fits);
    let file = files.next().unwrap_or_else(|| panic!("no {begin}*{end}"));
    assert_eq!(files.next(), None);
    file
}

pub(crate) fn deb() -> PathBuf {
    file(&PACKAGES.first, "mote-agent_", ".deb")
}

pub(crate) fn newer() -> PathBuf {
    file(&PACKAGES.newer, "mote-agent_", ".deb")
}

pub(crate) fn tarball(into: &Scratch) -> PathBuf {
    unpacked(&PACKAGES.first, into)
}

pub(crate) fn unpacked(directory: &Path, into: &Scratch) -> PathBuf {
    let tar = file(directory, "mote-agent-", ".tar.gz");
    run(Command::new("tar").arg("-xzf").arg(tar).arg("-C").arg(&into.0));
    file(&into.0, "mote-agent-", "")
}

pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {:?}\n{out}{err}", output.status);
    out
}
