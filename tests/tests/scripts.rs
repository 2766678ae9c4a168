//! The scripts on machines that miss something or are busy, made of a PATH with little in it; and what
//! a build is proved by.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use mote_tests::{Scratch, agent, put};

/// What every machine has.
const TOOLS: &str =
    "bash cat cut date dirname env grep head mktemp paste rm sed sleep sort tr true";
/// An apt-get that says what it was asked, and does what the test wants of it.
const APT: &str = "#!/bin/bash\necho \"apt-get $*\" >>\"$HOME/asked\"\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A machine with those tools and with programs of the test's.
struct Machine(Scratch);

impl Machine {
    fn new(programs: &[(&str, &str)]) -> Self {
        let scratch = Scratch::new();
        let bin = scratch.0.join("bin");
        std::fs::create_dir(&bin).expect("a directory");
        for tool in TOOLS.split(' ') {
            symlink(Path::new("/usr/bin").join(tool), bin.join(tool)).expect("a link");
        }
        for (name, script) in programs {
            let path = bin.join(name);
            put(&path, script);
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("a mode");
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

    /// What apt-get was asked for.
    fn asked(&self) -> String {
        std::fs::read_to_string(self.0.0.join("asked")).unwrap_or_default()
    }
}

/// The user's number, as `id -u` has it.
const ROOT: (&str, &str) = ("id", "#!/bin/bash\necho 0\n");
const SOMEBODY: (&str, &str) = ("id", "#!/bin/bash\necho 1000\n");
const SET_UP: &str = ". scripts/common; . scripts/setup build";

#[test]
fn help_is_there_at_once_and_nothing_is_installed() {
    let machine = Machine::new(&[ROOT, ("apt-get", APT), ("cargo", APT), ("rustup", APT)]);
    for name in ["run", "test", "bench", "build", "fresh", "size", "fuzz", "docs"] {
        for option in ["--help", "-h"] {
            let (code, text) = machine.sh(&format!("scripts/{name} {option}"));
            assert_eq!(code, Some(0), "{name}: {text}");
            assert!(
                text.contains(&format!("scripts/{name}")) && !text.contains("set -eu"),
                "{text}"
            );
        }
    }
    assert_eq!(machine.asked(), "");
    let (code, text) = machine.sh("scripts/run --sell");
    assert_eq!((code, text.contains("scripts/run --shell")), (Some(2), true), "{text}");
    assert_eq!(machine.asked(), "");
}

/// The commit is that of the sources; a build by hand has none, and says so.
#[test]
fn a_binary_tells_its_release_and_its_commit() {
    let output = Command::new(agent()).arg("--version").output().expect("the agent");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let commit = text
        .strip_prefix(concat!(env!("CARGO_PKG_VERSION"), " ("))
        .and_then(|rest| rest.strip_suffix(")\n"))
        .unwrap_or_else(|| panic!("{text}"));
    let hash = commit.trim_end_matches('+');
    let known = hash.len() >= 10 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(known || commit == "of an unknown commit", "{text}");
}

#[test]
fn each_stage_of_the_tests_is_told_and_can_be_asked_for() {
    let machine = Machine::new(&[ROOT, ("apt-get", APT), ("cargo", APT)]);
    let (code, text) = machine.sh("scripts/test --list");
    assert_eq!(code, Some(0), "{text}");
    let script = std::fs::read_to_string(root().join("scripts/test")).expect("the script");
    let told: Vec<_> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(told.len() > 15, "{text}");
    for name in &told {
        assert!(script.contains(&format!("\nstage_{name}() {{")), "{name}");
    }
    let written = script.matches("\nstage_").count();
    assert_eq!(written, told.len() + 1, "all but quick");
    // As the script finds what to run: one that it does not find would pass unrun.
    let (_, found) = machine.sh(
        "eval \"$(sed -n '/^stages=/,/^\"$/p; /^names()/p' scripts/test)\"; names <<<\"$stages\"",
    );
    assert_eq!(found.lines().collect::<Vec<_>>(), told);
    let (code, text) = machine.sh("scripts/test lints nonsense");
    assert_eq!((code, text.contains("no stage nonsense")), (Some(2), true), "{text}");
    assert_eq!(machine.asked(), "");
}

/// The lines of the scripts that build something without `--locked`: with versions that nobody has tested.
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
fn each_script_builds_with_the_versions_of_the_lock_file() {
    let mut builds = 0;
    for folder in [".ci", "image", "scripts", "tests/clients"] {
        for entry in root().join(folder).read_dir().expect("a folder").flatten() {
            // Folders hold no scripts of cargo's.
            let Ok(script) = std::fs::read_to_string(entry.path()) else { continue };
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
fn another_package_manager_is_waited_for_at_each_of_its_locks() {
    let busy = "case \"$*\" in *assume-no*) exit ;; *update*) lock=lists/lock ;; *) lock=dpkg ;; esac\n\
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
    // Once more for the toolchain.
    assert_eq!(machine.asked().matches(" -y ").count(), 3, "{}", machine.asked());
}

#[test]
fn what_apt_says_is_shown_when_it_fails_and_only_then() {
    let fails = "case \"$*\" in *' -y '*) echo 'dlstatus:1:50:half of it'; echo 'E: No space left'; exit 100 ;; esac\n\
        echo 'debconf: delaying package configuration, since apt-utils is not installed'\n";
    let machine = Machine::new(&[ROOT, ("apt-get", &format!("{APT}{fails}"))]);
    let (code, text) = machine.sh(SET_UP);
    assert_eq!(code, Some(100), "{text}");
    assert!(text.contains("E: No space left"), "{text}");
    assert!(!text.contains("delaying") && !text.contains("half of it"), "{text}");
}

#[test]
fn who_may_not_install_reads_what_to_install() {
    let machine = Machine::new(&[SOMEBODY, ("apt-get", APT)]);
    let (code, text) = machine.sh(". scripts/common; . scripts/setup run");
    assert_eq!(code, Some(1), "{text}");
    for word in ["neither root nor sudo", "gcc libc6-dev", "qemu-system-x86", "rustup"] {
        assert!(text.contains(word), "{word} is missing in {text}");
    }
    assert!(!text.contains("valgrind"), "only the tests need it: {text}");
    assert_eq!(machine.asked(), "");
}

#[test]
fn rustup_is_told_the_names_and_its_own_error_is_shown() {
    let rustup = "#!/bin/bash\necho \"rustup $*\" >>\"$HOME/asked\"\n\
        [ \"$1\" = component ] || echo 'error: could not download: no route to host'\nexit 1\n";
    let machine = Machine::new(&[ROOT, ("apt-get", APT), ("rustup", rustup), ("cargo", APT)]);
    let (code, text) = machine.sh(SET_UP);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("error: could not download: no route to host"), "{text}");
    let asked = machine.asked();
    let install = asked.lines().find(|line| line.starts_with("rustup toolchain install"));
    let channel = std::fs::read_to_string(root().join("rust-toolchain.toml")).expect("it");
    let channel = channel.lines().find_map(|line| line.strip_prefix("channel = \"")).expect("one");
    let named = format!("rustup toolchain install {}", channel.trim_end_matches('"'));
    let install = install.expect("rustup was asked for a toolchain");
    assert!(install.starts_with(&named), "{install}");
    for part in ["--component rust-src", "--target x86_64-unknown-linux-musl"] {
        assert!(install.contains(part), "{install}");
    }
}

#[test]
fn a_cargo_that_is_too_old_is_said_to_be() {
    let cargo = "#!/bin/bash\necho 'cargo 1.63.0 (Debian)'\n";
    let machine = Machine::new(&[ROOT, ("apt-get", APT), ("cargo", cargo)]);
    let (code, text) = machine.sh(SET_UP);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("cargo is 1.63.0, and mote needs 1."), "{text}");
}

fn prove(binary: &Path, limit: &str) -> (bool, String) {
    let output = Command::new(root().join("scripts/prove")).arg(binary).arg(limit).output();
    let output = output.expect("scripts/prove");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A program of the C compiler's.
fn compiled(scratch: &Scratch, options: &[&str]) -> PathBuf {
    let (source, program) = (scratch.0.join("main.c"), scratch.0.join("program"));
    put(&source, "int main(void) { return 0; }\n");
    let made = Command::new("cc").args(options).arg("-o").arg(&program).arg(&source).status();
    assert!(made.expect("cc").success());
    program
}

#[test]
fn a_build_is_proved_to_be_static_pie_stripped_and_small_enough() {
    let scratch = Scratch::new();
    let whole = prove(&agent(), "any size");
    assert_eq!(whole, (true, String::new()));
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
fn a_build_over_its_limit_is_no_build() {
    let scratch = Scratch::new();
    let program = compiled(&scratch, &["-s", "-static-pie"]);
    let bytes = program.metadata().expect("it").len();
    assert_eq!(prove(&program, "limit"), (true, String::new()));
    // Bytes behind the sections are bytes of the file.
    let file = std::fs::File::options().append(true).open(&program).expect("it");
    file.set_len(2_000_000).expect("more of it");
    let (proved, text) = prove(&program, "limit");
    assert!(!proved && text.contains("2000000 bytes, "), "{bytes}: {text}");
    assert!(text.contains(" over the limit of "), "{text}");
    let (proved, text) = prove(&program, "no such limit");
    assert!(!proved && text.contains("no line 'no such limit'"), "{text}");
}

#[test]
fn options_that_limit_the_host_reach_the_agent_of_the_initramfs() {
    let scratch = Scratch::new();
    let guest = scratch.0.join("guest");
    let options = || {
        let output = Command::new(root().join("image/hooks/options")).arg(&guest).output();
        let output = output.expect("image/hooks/options");
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    assert_eq!(options(), "");
    let unit = "[Service]\nExecStart=/usr/sbin/mote-agent\n";
    put(guest.join("usr/lib/systemd/system/mote-agent.service"), unit);
    put(guest.join("etc/default/mote-agent"), "# OPTIONS=\"--deny exec\"\nOPTIONS=\"\"\n");
    assert_eq!(options(), "");
    let drop_in = std::fs::read_to_string(root().join("image/services/mote-agent-hardened.conf"));
    let place = guest.join("etc/systemd/system/mote-agent.service.d");
    put(place.join("hardened.conf"), drop_in.expect("the drop-in"));
    assert_eq!(options(), "--deny=exec,files,mounts,port-forward,templates,first-boot\n");
    for (file, text, expected) in [
        ("etc/default/mote-agent", "OPTIONS=\"--deny exec\"", "--deny=exec\n"),
        (
            "etc/default/mote-agent",
            "OPTIONS='--initramfs --allow=state,metrics'",
            "--allow=state,metrics\n",
        ),
        ("etc/conf.d/mote-agent", "command_args=\"-d --deny=files\"", "--deny=files\n"),
        (
            "etc/sv/mote-agent/run",
            "exec mote-agent \\\n  --deny \\\n  'state' >>log",
            "--deny=state\n",
        ),
        ("etc/default/mote-agent", "OPTIONS=\"--deny $LIST\"", "--allow=\n"),
        ("etc/default/mote-agent", "OPTIONS=\"--allow '' --deny exec\"", "--allow=\n--deny=exec\n"),
    ] {
        std::fs::remove_dir_all(guest.join("etc")).expect("removed");
        put(guest.join(file), text);
        assert_eq!(options(), expected, "{text}");
    }
}

#[test]
fn what_is_started_in_the_initramfs_has_these_options_and_a_log_of_roots() {
    let scratch = Scratch::new();
    let options = "--allow=\n--deny=exec,files\n";
    let (agent, told) = (scratch.0.join("mote-agent"), scratch.0.join("told"));
    put(
        &agent,
        format!("#!/bin/sh\nprintf '%s\\n' \"$@\" >{0}.new; mv {0}.new {0}\n", told.display()),
    );
    std::fs::set_permissions(&agent, PermissionsExt::from_mode(0o755)).expect("a mode");
    put(scratch.0.join("options"), options);
    let log = scratch.0.join("log");
    let start = [
        ("/usr/sbin/mote-agent", &agent),
        ("/etc/mote-agent.options", &scratch.0.join("options")),
        ("/run/mote-agent-initramfs.log", &log),
        ("/sys/fs/cgroup", &scratch.0),
    ];
    let text = std::fs::read_to_string(root().join("image/hooks/start")).expect("the script");
    let text =
        start.iter().fold(text, |text, (from, to)| text.replace(from, &to.display().to_string()));
    assert!(Command::new("sh").args(["-c", &text]).status().expect("sh").success());
    let (words, _) = mote_tests::wait("its start", std::time::Duration::from_secs(20), || {
        std::fs::read_to_string(&told).ok()
    });
    assert_eq!(words, format!("--initramfs\n{options}"));
    let mode = std::fs::metadata(&log).expect("its log").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// The installer with files to install, and an image whose links lead to what is in its own `outside`, not to this
/// system's directory of that name.
fn installer_and_image(scratch: &Scratch, outside: &Path) -> (PathBuf, PathBuf) {
    let (folder, image) = (scratch.0.join("folder"), scratch.0.join("image"));
    for file in ["init.d/x", "usr/lib/x"] {
        put(outside.join(file), "");
    }
    let program = std::fs::read(root().join("image/packages/install")).expect("the installer");
    put(folder.join("install"), program);
    for file in "mote-agent when-idle mote-agent.8.gz copyright third-party.gz mote-agent.yml hardened.conf mote-agent.bash \
                 mote-agent.zsh mote-agent.fish services/sysvinit services/respawn"
        .split_whitespace()
    {
        put(folder.join(file), "new");
    }
    put(image.join("real/rc/inittab"), "");
    put(image.join("real/rc/rcS.d/x"), "");
    put(image.join("real/lib/lsb/init-functions"), "");
    put(image.join("real/share/x"), "");
    let outside_text = outside.display().to_string();
    for (at, to) in [
        ("etc", "/real/rc"),
        ("lib", "real/../real/lib"),
        ("usr", "/../../real"),
        // Of the same name on this system.
        ("real/rc/init.d", &*format!("{outside_text}/init.d")),
        ("real/sbin", &*format!("{outside_text}/usr")),
        ("real/rc/rc0.d", "loop"),
        ("real/rc/loop", "rc0.d"),
    ] {
        symlink(to, image.join(at)).expect("a link");
    }
    (folder, image)
}

#[test]
fn the_installer_stays_in_the_root_whose_links_are_absolute() {
    let scratch = Scratch::new();
    let outside = scratch.0.join("outside");
    let (folder, image) = installer_and_image(&scratch, &outside);
    let install = |more: &[&str]| {
        let mut command = Command::new("sh");
        command
            .arg(folder.join("install"))
            .arg("--root")
            .arg(&image)
            .args(more)
            .output()
            .expect("sh")
    };
    let failed = install(&[]);
    let said = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(!failed.status.success() && said.contains("too many links"), "{said}");
    std::fs::remove_file(image.join("real/rc/loop")).expect("removed");
    std::fs::remove_file(image.join("real/rc/rc0.d")).expect("removed");
    let done = install(&[]);
    assert!(done.status.success(), "{done:?}");
    assert!(String::from_utf8_lossy(&done.stdout).contains("enabled for sysvinit"), "{done:?}");
    let inside = |path: &str| image.join(outside.strip_prefix("/").expect("a path")).join(path);
    for made in [
        inside("init.d/mote-agent"),
        inside("usr/mote-agent"),
        image.join("real/rc/rcS.d/S01mote-agent"),
    ] {
        assert!(made.symlink_metadata().is_ok(), "{}", made.display());
    }
    let untouched = || {
        let find = Command::new("find").arg(&outside).args(["-type", "f"]).output().expect("find");
        assert_eq!(String::from_utf8_lossy(&find.stdout).lines().count(), 2, "{find:?}");
    };
    untouched();
    assert!(install(&["--uninstall"]).status.success());
    untouched();
    assert!(!inside("init.d/mote-agent").exists() && !image.join("real/lib/mote-agent").exists());
}
