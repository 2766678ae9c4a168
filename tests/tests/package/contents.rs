//! Contents of the packages.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::built::{NEWER, OTHERS, Other, PACKAGES, deb, file, newer, run, tarball, unpacked};

const AGENT: &[(&str, &str)] = &[
    ("/etc/init.d/mote-agent", "-rwxr-xr-x"),
    ("/etc/logrotate.d/mote-agent", "-rw-r--r--"),
    ("/etc/sv/mote-agent/run", "-rwxr-xr-x"),
    ("/usr/lib/dracut/modules.d/90mote-agent/module-setup.sh", "-rwxr-xr-x"),
    ("/usr/lib/dracut/modules.d/90mote-agent/mote-agent-initramfs.service", "-rw-r--r--"),
    ("/usr/lib/initcpio/hooks/mote-agent", "-rw-r--r--"),
    ("/usr/lib/initcpio/install/mote-agent", "-rw-r--r--"),
    ("/usr/lib/mote-agent/in-initramfs", "-rwxr-xr-x"),
    ("/usr/lib/mote-agent/options", "-rwxr-xr-x"),
    ("/usr/lib/mote-agent/respawn", "-rwxr-xr-x"),
    ("/usr/lib/mote-agent/when-idle", "-rwxr-xr-x"),
    ("/usr/lib/systemd/system/incus-agent.service.d/not-beside-mote.conf", "-rw-r--r--"),
    ("/usr/lib/systemd/system/lxd-agent.service.d/not-beside-mote.conf", "-rw-r--r--"),
    ("/usr/lib/systemd/system/mote-agent.service", "-rw-r--r--"),
    ("/usr/lib/udev/rules.d/99-mote-agent.rules", "-rw-r--r--"),
    ("/usr/sbin/mote-agent", "-rwxr-xr-x"),
    ("/usr/share/bash-completion/completions/mote-agent", "-rw-r--r--"),
    ("/usr/share/doc/mote-agent/changelog.gz", "-rw-r--r--"),
    ("/usr/share/doc/mote-agent/copyright", "-rw-r--r--"),
    ("/usr/share/doc/mote-agent/examples/hardened.conf", "-rw-r--r--"),
    ("/usr/share/doc/mote-agent/examples/mote-agent.yml", "-rw-r--r--"),
    ("/usr/share/doc/mote-agent/examples/openrc", "-rw-r--r--"),
    ("/usr/share/doc/mote-agent/third-party.gz", "-rw-r--r--"),
    ("/usr/share/fish/vendor_completions.d/mote-agent.fish", "-rw-r--r--"),
    ("/usr/share/initramfs-tools/hooks/mote-agent", "-rwxr-xr-x"),
    ("/usr/share/initramfs-tools/scripts/init-top/mote-agent", "-rwxr-xr-x"),
    ("/usr/share/lintian/overrides/mote-agent", "-rw-r--r--"),
    ("/usr/share/man/man5/mote-agent.yml.5.gz", "-rw-r--r--"),
    ("/usr/share/man/man8/mote-agent.8.gz", "-rw-r--r--"),
    ("/usr/share/zsh/vendor-completions/_mote-agent", "-rw-r--r--"),
];

/// Returns the files of the .rpm: only systemd's, with licences and zsh's completion in the usual
/// places of an .rpm.
fn in_rpm() -> Vec<String> {
    let others = ["/etc/", "/usr/lib/initcpio/", "/usr/lib/mote-agent/respawn"].into_iter();
    let others =
        others.chain(["/usr/share/doc/mote-agent/changelog", "/usr/share/initramfs-tools/"]);
    let others: Vec<_> = others.chain(["/usr/share/lintian/"]).collect();
    let files =
        AGENT.iter().filter(|(path, _)| !others.iter().any(|begin| path.starts_with(begin)));
    let own = |path: &str| {
        let path = path.replace("doc/mote-agent/copyright", "licenses/mote-agent/copyright");
        let path = path.replace("doc/mote-agent/third-party", "licenses/mote-agent/third-party");
        path.replace("vendor-completions/_", "site-functions/_")
    };
    let mut files: Vec<_> = files.map(|(path, _)| own(path)).collect();
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
    let wanted = AGENT
        .iter()
        .map(|(path, mode)| ((*path).to_owned(), ((*mode).to_owned(), "0/0".to_owned())));
    assert_eq!(listed(&list), wanted.collect());
    for folder in list.lines().filter(|line| line.starts_with('d')) {
        assert!(folder.starts_with("drwxr-xr-x 0/0 "), "{folder}");
    }
    let conffiles = run(Command::new("dpkg-deb").arg("-I").arg(deb).arg("conffiles"));
    let mut conffiles: Vec<_> = conffiles.lines().collect();
    conffiles.sort_unstable();
    let etc = AGENT.iter().map(|(path, _)| *path).filter(|path| path.starts_with("/etc"));
    assert_eq!(conffiles, etc.collect::<Vec<_>>());
}

#[test]
fn the_debian_package_has_exactly_these_files() {
    has_these_files_and_no_others(&deb());
}

/// Returns the maintainer scripts of a Debian package and its control fields, without architecture
/// and size.
fn control(deb: &Path) -> String {
    let script =
        "dpkg-deb --ctrl-tarfile \"$0\" | tar -xOf - ./control ./postinst ./postrm ./prerm |
        grep -v '^Architecture: \\|^Installed-Size: '";
    run(Command::new("bash").args(["-o", "pipefail", "-c", script]).arg(deb))
}

#[test]
fn packages_of_all_architectures_differ_only_in_programs() {
    for (other, [made, _]) in OTHERS.iter().zip(&PACKAGES.others) {
        are_those_of_x86_64_with_another_program(other, made);
    }
}

fn are_those_of_x86_64_with_another_program(other: &Other, made: &Path) {
    let Other { name, debian, machine, .. } = *other;
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
    let (scratch, second) = (mote_tests::Scratch::new(), mote_tests::Scratch::new());
    let folder = unpacked(made, &scratch);
    let different =
        Command::new("diff").arg("-rq").args([&folder, &tarball(&second)]).output().expect("diff");
    let different = String::from_utf8_lossy(&different.stdout).into_owned();
    // Their crates differ, because the assembler's build needs more of them.
    for line in different.lines() {
        let name = ["/mote-agent and ", "/copyright and ", "/third-party.gz and "];
        assert!(name.iter().any(|name| line.contains(name)), "{line}");
    }
    let packed = mote_tests::Scratch::new();
    run(Command::new("dpkg-deb").arg("-x").arg(&its).arg(&packed.0));
    let programs = [folder.join("mote-agent"), packed.0.join("usr/sbin/mote-agent")];
    let programs = programs.map(|path| std::fs::read(path).expect("the agent"));
    assert!(programs[0] == programs[1]);
    assert_eq!(programs[0].get(18..20), Some(&[machine, 0][..]));
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
        let read = |directory| std::fs::read(file(directory, begin, end)).expect("a package");
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
    let scratch = mote_tests::Scratch::new();
    run(Command::new("dpkg-deb").arg("-x").arg(newer()).arg(&scratch.0));
    let said = run(Command::new(scratch.0.join("usr/sbin/mote-agent")).arg("--version"));
    assert!(said.starts_with(&format!("mote-agent {NEWER} (")), "{said}");
    let field = run(Command::new("dpkg-deb").arg("-f").arg(newer()).arg("Version"));
    assert_eq!(field.trim(), NEWER);
    for (file, line) in [
        ("man/man8/mote-agent.8.gz", format!("\"mote {NEWER}\"\n")),
        ("doc/mote-agent/changelog.gz", format!("mote-agent ({NEWER}) ")),
    ] {
        let text = run(Command::new("zcat").arg(scratch.0.join("usr/share").join(file)));
        assert!(text.contains(&line), "{file}: {text}");
    }
}

#[test]
fn the_example_policy_is_valid() {
    let scratch = mote_tests::Scratch::new();
    let example = include_str!("../../../image/packages/mote-agent.yml");
    mote_tests::put(scratch.0.join("etc/mote-agent.yml"), example);
    let mut check = Command::new(mote_tests::agent());
    check.arg("--check").arg("--root").arg(&scratch.0);
    let output = check.output().expect("the agent");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let policy: Vec<_> = text.lines().filter(|line| line.contains("policy: ")).collect();
    let denied = "ok       policy: denied: exec files mounts port-forward templates first-boot";
    assert_eq!(policy, [denied], "{text}");
}
