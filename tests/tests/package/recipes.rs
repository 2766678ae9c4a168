//! The recipes of `image/recipes`: the files that they package exist, and their functions run in a
//! shell.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use mote_tests::Scratch;

use crate::built::{run, source, tarball};

const FILES: [&str; 5] = [
    "usr/share/bash-completion/completions/mote-agent",
    "usr/share/fish/vendor_completions.d/mote-agent.fish",
    "usr/share/man/man5/mote-agent.yml.5.gz",
    "usr/share/man/man8/mote-agent.8.gz",
    "usr/share/zsh/site-functions/_mote-agent",
];

fn recipes() -> PathBuf {
    source().join("image/recipes")
}

fn texts(folder: &Path) -> Vec<(PathBuf, String)> {
    let entries =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("one").path());
    let read = |path: PathBuf| {
        if path.is_dir() {
            return texts(&path);
        }
        let text = std::fs::read_to_string(&path).expect("text");
        vec![(path, text)]
    };
    entries.flat_map(read).collect()
}

#[test]
fn each_recipe_states_its_tests_and_the_current_version() {
    let cargo = std::fs::read_to_string(source().join("Cargo.toml")).expect("Cargo.toml");
    let version = cargo.split("\nversion = \"").nth(1).and_then(|rest| rest.split('"').next());
    let version = version.expect("a version");
    let texts = texts(&recipes());
    assert!(texts.len() >= 6, "{texts:?}");
    let mut versions = 0;
    for (path, text) in &texts {
        let says = text.matches("# Tested:").count() + text.matches("# Not tested").count();
        // Buildroot's other files are a few lines, without comments.
        let alone = path.components().any(|part| part.as_os_str() == "buildroot") && says == 0;
        assert!(says == 1 || alone, "{}", path.display());
        let words =
            ["pkgver=", "VERSION = ", "version = \"", "mote-agent-", "mote-agent_", "mote-agent:"];
        for word in words {
            let numbers = text.split(word).skip(1).map(number).filter(|number| !number.is_empty());
            for number in numbers {
                versions += 1;
                assert_eq!(number, version, "{}", path.display());
            }
        }
    }
    assert!(versions >= 4, "{versions}");
}

fn number(text: &str) -> &str {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    text[..end.unwrap_or(text.len())].trim_end_matches('.')
}

/// Runs the recipe's `package` as its tool does, with the variables of both tools: Alpine's in the
/// built sources, Arch's next to the unpacked tarball.
fn packaged(shell: &str, recipe: &str) -> Scratch {
    let (sources, made) = (Scratch::new(), Scratch::new());
    let mut command = Command::new(shell);
    if recipe == "APKBUILD" {
        let built = sources.0.join("target/musl/release");
        std::fs::create_dir_all(&built).expect("a folder");
        let links = [(mote_tests::agent(), built.join("mote-agent"))].into_iter();
        let own = ["image", "LICENSE-MIT", "LICENSE-APACHE"].into_iter();
        for (from, to) in links.chain(own.map(|name| (source().join(name), sources.0.join(name)))) {
            std::os::unix::fs::symlink(from, to).expect("a link");
        }
    } else {
        tarball(&sources);
    }
    let script = format!("set -eu; . {}/{recipe}; cd \"$srcdir\"; package", recipes().display());
    command.args(["-c", &script]).env("CTARGET", "musl");
    command.env("pkgdir", &made.0).env("srcdir", &sources.0).env("CARCH", "x86_64");
    run(&mut command);
    made
}

pub(crate) fn files(root: &Path) -> BTreeSet<String> {
    let list =
        run(Command::new("find").args([".", "-type", "f", "-printf", "%P %m\n"]).current_dir(root));
    list.lines().map(str::to_owned).collect()
}

fn has(root: &Path, programs: &[&str], data: &[&str]) {
    let mode = |names: &[&str], mode: &str| {
        names.iter().map(|name| format!("{name} {mode}")).collect::<Vec<_>>()
    };
    let all = [mode(programs, "755"), mode(data, "644"), mode(&FILES, "644")].concat();
    assert_eq!(files(root), all.into_iter().collect());
    let built = std::fs::read(mote_tests::agent()).expect("the agent");
    assert!(std::fs::read(root.join(programs[0])).expect("the agent") == built);
}

#[test]
fn alpines_package_is_for_openrc() {
    // `dash` supports no more than busybox' shell.
    let made = packaged("dash", "APKBUILD");
    let doc = [
        "usr/share/doc/mote-agent/mote-agent.yml",
        "usr/share/licenses/mote-agent/LICENSE-APACHE",
        "usr/share/licenses/mote-agent/LICENSE-MIT",
    ];
    has(
        &made.0,
        &["usr/sbin/mote-agent", "usr/lib/mote-agent/when-idle", "etc/init.d/mote-agent"],
        &doc,
    );
}

#[test]
fn archs_package_is_for_systemd() {
    let made = packaged("bash", "PKGBUILD");
    let data = [
        "usr/lib/systemd/system/mote-agent.service",
        "usr/lib/udev/rules.d/99-mote-agent.rules",
        "usr/share/doc/mote-agent/examples/hardened.conf",
        "usr/share/doc/mote-agent/examples/mote-agent.yml",
        "usr/share/licenses/mote-agent/copyright",
        "usr/share/licenses/mote-agent/third-party.gz",
    ];
    has(&made.0, &["usr/bin/mote-agent", "usr/lib/mote-agent/when-idle"], &data);
}

#[test]
fn nixs_package_installs_the_tarballs_files() {
    let text = std::fs::read_to_string(recipes().join("nix/package.nix")).expect("the recipe");
    let (_, rest) = text.split_once("installPhase = ''").expect("a phase");
    let (phase, _) = rest.split_once("'';").expect("its end");
    let (sources, made) = (Scratch::new(), Scratch::new());
    let substitute =
        "runHook() { :; }; substituteInPlace() { sed -i \"s|$3|$4|\" \"$1\"; }; set -eu;";
    let mut command = Command::new("bash");
    command.args(["-c", &format!("{substitute}{phase}")]);
    run(command.env("out", &made.0).current_dir(tarball(&sources)));
    let unit = std::fs::read_to_string(made.0.join("lib/systemd/system/mote-agent.service"))
        .expect("the unit");
    let program = made.0.join("bin/mote-agent");
    assert!(unit.contains(&format!("ExecStart={}\n", program.display())), "{unit}");
    assert!(program.exists() && made.0.join("lib/udev/rules.d/99-mote-agent.rules").exists());
}
