//! The build scripts on machines that are busy or lack tools, and the checks of built programs.

mod image;
mod snapshot;

use mote_tests::prelude::*;

const TOOLS: &str =
    "bash cat cut date dirname env grep head mktemp paste rm sed sleep sort tr true";
/// An apt-get that records its arguments and reacts as the test needs.
const APT: &str = "#!/bin/bash\necho \"apt-get $*\" >>\"$HOME/asked\"\n[ \"$1\" != indextargets ] || echo http://mirror.example/debian Debian\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

struct Machine(Scratch);

impl Machine {
    fn new(programs: &[(&str, &str)]) -> Self {
        let scratch = Scratch::new();
        let bin = scratch.0.join("bin");
        fs::create_dir(&bin).expect("a directory");
        for tool in TOOLS.split(' ') {
            symlink(Path::new("/usr/bin").join(tool), bin.join(tool)).expect("a link");
        }
        for (name, script) in programs {
            program(bin.join(name), script);
        }
        Self(scratch)
    }

    fn sh(&self, script: &str) -> (Option<i32>, String) {
        let mut command = Command::new("/bin/bash");
        command.args(["-c", script]).current_dir(root()).env_clear();
        command.env("HOME", &self.0.0).env("PATH", self.0.0.join("bin"));
        let Output { status, stdout, stderr } = command.output().expect("bash");
        (status.code(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
    }

    fn asked(&self) -> String {
        fs::read_to_string(self.0.0.join("asked")).unwrap_or_default()
    }
}

/// Makes `id -u` report root.
const ROOT: (&str, &str) = ("id", "#!/bin/bash\necho 0\n");
const SOMEBODY: (&str, &str) = ("id", "#!/bin/bash\necho 1000\n");
const SET_UP: &str = ". scripts/common; . scripts/setup build";

#[test]
fn help_and_unknown_options_install_nothing() {
    let machine = Machine::new(&[ROOT, ("apt-get", APT), ("cargo", APT), ("rustup", APT)]);
    let mut scripts: Vec<_> = [".ci", "scripts", "image", "image/servers"]
        .iter()
        .flat_map(|folder| {
            let entries = root().join(folder).read_dir().expect("a folder").flatten();
            entries.map(move |entry| (folder, entry))
        })
        .filter(|(_, entry)| {
            let about = entry.metadata().expect("a file");
            about.is_file() && about.permissions().mode() & 0o111 != 0
        })
        .map(|(folder, entry)| format!("{folder}/{}", entry.file_name().display()))
        .collect();
    scripts.push("image/packages/root".to_owned());
    assert!(scripts.len() > 25, "{scripts:?}");
    for name in scripts {
        for option in ["--help", "-h"] {
            let (code, text) = machine.sh(&format!("{name} {option}"));
            assert_eq!(code, Some(0), "{name}: {text}");
            assert!(text.contains(&name) && !text.contains("set -eu"), "{name}: {text}");
        }
        // These scripts pass unknown options on to cargo.
        if !["scripts/build", "scripts/size"].contains(&&*name) {
            let refused = machine.sh(&format!("{name} --sell"));
            exits(refused, Some(2), &["mote: unknown argument: --sell\n"]);
        }
    }
    assert_eq!(machine.asked(), "");
    exits(machine.sh("scripts/run --sell"), Some(2), &["scripts/run --shell"]);
    assert_eq!(machine.asked(), "");
}

/// A binary reports the commit of its sources, and a manual build reports that it has none.
#[test]
fn a_binary_reports_its_release_and_commit() {
    let output = Command::new(agent()).arg("--version").output().expect("the agent");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let commit = text
        .strip_prefix(concat!("mote-agent ", env!("CARGO_PKG_VERSION"), " ("))
        .and_then(|rest| rest.strip_suffix(")\n"))
        .unwrap_or_else(|| panic!("{text}"));
    let hash = commit.trim_end_matches('+');
    let known = hash.len() >= 10 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(known || commit == "of an unknown commit", "{text}");
}

#[test]
fn each_test_stage_is_listed_and_can_be_run() {
    let machine = Machine::new(&[ROOT, ("apt-get", APT), ("cargo", APT)]);
    let (code, text) = machine.sh("scripts/test --list");
    assert_eq!(code, Some(0), "{text}");
    let script = fs::read_to_string(root().join("scripts/test")).expect("the script");
    let told: Vec<_> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(told.len() > 15, "{text}");
    for name in &told {
        assert!(script.contains(&format!("\nstage_{name}() {{")), "{name}");
    }
    assert_eq!(script.matches("\nstage_").count(), told.len() + 1, "all but quick");
    // Runs the script's own search for stages: one that it does not find would pass unnoticed.
    let (_, found) = machine.sh(
        "eval \"$(sed -n '/^stages=/,/^\"$/p; /^names()/p' scripts/test)\"; names <<<\"$stages\"",
    );
    assert_eq!(found.lines().collect::<Vec<_>>(), told);
    exits(machine.sh("scripts/test lints nosuch"), Some(2), &["no stage nosuch"]);
    assert_eq!(machine.asked(), "");
}

/// Returns the lines that build without `--locked`, which would use untested versions.
fn unlocked(script: &str) -> impl Iterator<Item = &str> {
    let builds = |line: &str| {
        let mut words = line.split_whitespace().skip_while(|word| !word.ends_with("cargo")).skip(1);
        let command = words.next().unwrap_or_default();
        matches!(command, "build" | "check" | "clippy" | "install" | "run" | "test")
    };
    let is_code = |line: &&str| !line.trim_start().starts_with('#');
    script.lines().filter(is_code).filter(move |line| builds(line) && !line.contains(" --locked"))
}

#[test]
fn each_script_builds_with_the_lock_file() {
    let mut builds = 0;
    for folder in [".ci", "image", "scripts", "tests/clients"] {
        for entry in root().join(folder).read_dir().expect("a folder").flatten() {
            // Directories contain no build scripts.
            let Ok(script) = fs::read_to_string(entry.path()) else { continue };
            let found: Vec<_> = unlocked(&script).collect();
            assert!(found.is_empty(), "{}: {found:?}", entry.path().display());
            builds += script.matches(" --locked").count();
        }
    }
    assert!(builds > 10, "{builds}");
    let both =
        "cargo build -p a\nslow x cargo test --locked\n# cargo run\n(cd x && cargo install y)";
    assert_eq!(
        unlocked(both).collect::<Vec<_>>(),
        ["cargo build -p a", "(cd x && cargo install y)"]
    );
}

#[test]
fn waits_for_another_package_manager_at_each_lock() {
    let busy = "case \"$*\" in *update*) lock=lists/lock ;; *) lock=dpkg ;; esac\n\
        if [ ! -e \"$HOME/${lock//\\//-}\" ]; then\n\
            >\"$HOME/${lock//\\//-}\"\n\
            echo \"E: Could not get lock /var/lib/apt/$lock. It is held by process 4711 (unattended-upgr)\" >&2\n\
            exit 100\n\
        fi\n";
    let machine = Machine::new(&[ROOT, ("apt-get", &format!("{APT}{busy}"))]);
    let (code, text) = machine.sh(SET_UP);
    assert_eq!(code, Some(0), "{text}");
    let told = "waiting for another package manager to end (unattended-upgr, process 4711)";
    assert_eq!(text.matches(told).count(), 2, "{text}");
    assert!(!text.contains("E: "), "{text}");
    assert_eq!(machine.asked().matches(" update").count(), 2, "{}", machine.asked());
    // The third call installs the toolchain.
    assert_eq!(machine.asked().matches(" -y ").count(), 3, "{}", machine.asked());
}

#[test]
fn shows_apts_output_only_if_it_fails() {
    let fails = "case \"$*\" in *' -y '*) echo 'E: No space left'; exit 100 ;; esac\n\
        echo 'debconf: delaying package configuration, since apt-utils is not installed'\n";
    let (code, text) = Machine::new(&[ROOT, ("apt-get", &format!("{APT}{fails}"))]).sh(SET_UP);
    assert_eq!(code, Some(100), "{text}");
    assert!(text.contains("E: No space left"), "{text}");
    assert!(!text.contains("delaying"), "{text}");
}

#[test]
fn users_without_privileges_read_what_to_install() {
    let machine = Machine::new(&[SOMEBODY, ("apt-get", APT)]);
    let (code, text) = machine.sh(". scripts/common; . scripts/setup run");
    assert_eq!(code, Some(1), "{text}");
    contains(&text, &["neither root nor sudo", "gcc libc6-dev", "qemu-system-x86", "rustup"]);
    assert!(!text.contains("xfsprogs"), "only the tests need it: {text}");
    assert_eq!(machine.asked(), "");
}

#[test]
fn passes_names_to_rustup_and_shows_its_error() {
    let rustup = "#!/bin/bash\necho \"rustup $*\" >>\"$HOME/asked\"\n\
        [ \"$1\" = component ] || echo 'error: could not download: no route to host'\nexit 1\n";
    let machine = Machine::new(&[ROOT, ("apt-get", APT), ("rustup", rustup), ("cargo", APT)]);
    let (code, text) = machine.sh(SET_UP);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("error: could not download: no route to host"), "{text}");
    let asked = machine.asked();
    let install = asked.lines().find(|line| line.starts_with("rustup toolchain install"));
    let channel = fs::read_to_string(root().join("rust-toolchain.toml")).expect("it");
    let channel = channel.lines().find_map(|line| line.strip_prefix("channel = \"")).expect("one");
    let named = format!("rustup toolchain install {}", channel.trim_end_matches('"'));
    let install = install.expect("rustup was asked for a toolchain");
    assert!(install.starts_with(&named), "{install}");
    contains(install, &["--component rust-src", "--target x86_64-unknown-linux-musl"]);
}

#[test]
fn reports_an_outdated_cargo() {
    let cargo = "#!/bin/bash\necho 'cargo 1.63.0 (Debian)'\n";
    let said = Machine::new(&[ROOT, ("apt-get", APT), ("cargo", cargo)]).sh(SET_UP);
    exits(said, Some(1), &["cargo is 1.63.0, and mote needs 1."]);
}

/// The main archive has an older version, and only the security archive has the required one.
#[test]
fn reports_a_missing_security_archive_before_installing() {
    let cache = |version: &str| {
        format!(
            "#!/bin/bash\ncase \"$*\" in *rustup) ;; *) echo 'Package: x'; echo 'Version: {version}' ;; esac\n"
        )
    };
    let old = cache("1.85.0+dfsg3-1~deb12u3");
    let machine = Machine::new(&[ROOT, ("apt-get", APT), ("apt-cache", &old)]);
    let (code, text) = machine.sh(SET_UP);
    assert_eq!(code, Some(1), "{text}");
    let missing = [
        "cargo-web is 1.85.0, and mote needs 1.",
        "http://mirror.example/debian-security bookworm-security main",
    ];
    contains(&text, &missing);
    assert!(!machine.asked().contains("install -y"), "{}", machine.asked());
    let new = cache("1.96.0+dfsg1-1~deb12u2");
    let machine = Machine::new(&[ROOT, ("apt-get", APT), ("apt-cache", &new)]);
    let (_, text) = machine.sh(SET_UP);
    assert!(
        text.contains("installing cargo-web rustc-web") && !text.contains("security"),
        "{text}"
    );
    assert!(machine.asked().contains("cargo-web"), "{}", machine.asked());
}

fn prove(binary: &Path, limit: &str) -> (bool, String) {
    prove_by(&root(), binary, limit)
}

fn prove_by(root: &Path, binary: &Path, limit: &str) -> (bool, String) {
    let mut command = Command::new("bash");
    command.arg(root.join("scripts/prove")).arg(binary).arg(limit);
    let output = command.output().expect("scripts/prove");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn compiled(scratch: &Scratch, options: &[&str]) -> PathBuf {
    let (source, program) = (scratch.0.join("main.c"), scratch.0.join("program"));
    put(&source, "int main(void) { return 0; }\n");
    let made = Command::new("cc").args(options).arg("-o").arg(&program).arg(&source).status();
    assert!(made.expect("cc").success());
    program
}

#[test]
fn accepts_only_static_stripped_pie_builds_within_the_limit() {
    let scratch = Scratch::new();
    assert_eq!(prove(&agent(), "any size"), (true, String::new()));
    let cases: [(&[&str], &[&str]); 4] = [
        (&["-s", "-pie"], &["not static: a guest without /lib", "libc.so"]),
        (&["-s", "-static", "-no-pie"], &["not PIE"]),
        (&["-static-pie"], &["not stripped"]),
        (&["-s", "-shared", "-nostdlib", "-fPIC"], &["not PIE"]),
    ];
    for (options, reasons) in cases {
        let (proved, text) = prove(&compiled(&scratch, options), "any size");
        assert!(!proved, "{options:?}");
        for reason in reasons {
            assert!(text.contains(reason), "{options:?}: {text}");
        }
        assert_eq!(text.lines().count(), 1, "{options:?}: {text}");
    }
    let (proved, text) = prove(Path::new("/etc/passwd"), "any size");
    assert!(!proved && text.contains("not an ELF file"), "{text}");
}

#[test]
fn rejects_a_build_over_its_limit() {
    let scratch = Scratch::new();
    let program = compiled(&scratch, &["-s", "-static-pie"]);
    let bytes = program.metadata().expect("it").len();
    assert_eq!(prove(&program, "limit"), (true, String::new()));
    let file = File::options().append(true).open(&program).expect("it");
    file.set_len(2_000_000).expect("more of it");
    let (proved, text) = prove(&program, "limit");
    assert!(!proved && text.contains("2000000 bytes, "), "{bytes}: {text}");
    assert!(text.contains(" over the limit of "), "{text}");
    let (proved, text) = prove(&program, "no such limit");
    assert!(!proved && text.contains("no line 'no such limit'"), "{text}");
}

/// A limit for Debian's toolchain was once a separate number and became outdated when rustup's
/// changed.
#[test]
fn a_limit_for_debians_toolchain_follows_rustups() {
    let budget = fs::read_to_string(root().join("tests/budgets/size")).expect("the budget");
    let of =
        |name: &str| budget.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
    for name in ["limit", "limit with init", "limit of the smallest"] {
        let more = of(&format!("{name} with Debian's toolchain")).expect(name);
        assert!(of(name).is_some() && more.starts_with('+'), "{name}: {more}");
    }
    let scratch = Scratch::new();
    for script in ["prove", "common"] {
        let copy = scratch.0.join("scripts").join(script);
        put(&copy, fs::read(root().join("scripts").join(script)).expect("a script"));
    }
    let program = compiled(&scratch, &["-s", "-static-pie"]);
    let file = File::options().append(true).open(&program).expect("it");
    let prove = |bytes: u64| {
        file.set_len(bytes).expect("another size");
        prove_by(&scratch.0, &program, "limit with Debian's toolchain")
    };
    let base = program.metadata().expect("it").len().next_multiple_of(100_000);
    put(
        scratch.0.join("tests/budgets/size"),
        format!("limit\t{base}\nlimit with Debian's toolchain\t+20000\n"),
    );
    assert_eq!(prove(base + 20_000), (true, String::new()));
    let (proved, text) = prove(base + 20_001);
    assert!(!proved && text.contains("1 over the limit with Debian's toolchain of "), "{text}");
    assert!(text.contains("limit with Debian's toolchain<TAB>+24097\n"), "{text}");
}

#[test]
fn layers_are_whole_or_absent() {
    let gzip = "#!/bin/bash\n[ \"$1\" != -n ] || [ -e \"$HOME/works\" ] || exit 1\nexec /usr/bin/gzip \"$@\"\n";
    let mksquashfs = "#!/bin/bash\necho image >\"$2\"\n";
    let machine = Machine::new(&[("gzip", gzip), ("mksquashfs", mksquashfs)]);
    let run = |script: &str| {
        let path = "PATH=$PATH:/usr/sbin:/usr/bin:/sbin:/bin; to=\"$HOME/a b\"; ";
        machine.sh(&format!("{path}{script}"))
    };
    let (code, text) = run("set -e; cd \"$HOME\"; mkdir \"$to\"; d=mote-agent-1-x86_64; \
         mkdir -p $d/services; cd $d; touch mote-agent copyright third-party.gz mote-agent.yml \
         hardened.conf; cd services; touch mote-agent.service not-beside-mote.conf \
         99-mote-agent.rules respawn; cd ../..; tar -czf \"$to/$d.tar.gz\" $d");
    assert_eq!(code, Some(0), "{text}");
    let layers = "scripts/layers \"$to\"/*.gz && ls -A \"$to\"";
    exits(run(layers), Some(1), &[]);
    assert_eq!(run("ls -A \"$to\"").1, "mote-agent-1-x86_64.tar.gz\n");
    put(machine.0.0.join("works"), "");
    let (code, text) = run(layers);
    let made = "mote-agent-1-x86_64.raw\nmote-agent-1-x86_64.tar.gz\nmote-agent-1.oci.tar\n";
    assert!(code == Some(0) && text.ends_with(made), "{text}");
    // With two versions of tarballs, the image used to be named after the last one.
    let (code, text) =
        run("cd \"$to\"; cp *.gz mote-agent-2-riscv64.tar.gz; cd -; scripts/layers \"$to\"/*.gz");
    assert!(code == Some(2) && text.contains("of version 1\n"), "{text}");
}
