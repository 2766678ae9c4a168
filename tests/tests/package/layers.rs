//! The OCI image and the system extensions that `scripts/layers` packs.

use crate::contents::{
    ELSEWHERE, MACHINES, Machine, PACKAGES, deb, file, newer, run, source, tarball,
};
use crate::install::Root;
use mote_tests::prelude::*;

fn layers(settings: &str) -> Scratch {
    let made = Scratch::new();
    let folders = [&PACKAGES.first, &PACKAGES.others[0][0], &PACKAGES.others[1][0]];
    let tarballs = folders.map(|folder| file(folder, "mote-agent-", ".tar.gz"));
    let script = format!("{settings}to=$1; shift; cp \"$@\" $to; scripts/layers $to/*.tar.gz");
    let mut pack = Command::new("bash");
    pack.args(["-c", &script, "-"]).arg(&made.0).args(tarballs).current_dir(source());
    run(&mut pack);
    made
}

/// Returns the file that a descriptor names, and checks its size and digest.
fn blob(oci: &Path, descriptor: &Value) -> PathBuf {
    let sum = descriptor["digest"].as_str().and_then(|digest| digest.strip_prefix("sha256:"));
    let path = oci.join("blobs/sha256").join(sum.expect("a digest"));
    assert_eq!(fs::metadata(&path).expect("a blob").len(), descriptor["size"]);
    assert!(run(Command::new("sha256sum").arg(&path)).starts_with(sum.expect("a digest")));
    path
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON")
}

/// Checks the program's architecture and systemd's files. Other paths must begin with one of `own`.
fn has(root: &Path, program: &str, machine: u8, own: &[&str]) {
    assert_eq!(fs::read(root.join(program)).expect("the agent").get(18), Some(&machine));
    let units = "usr/lib/systemd/system";
    let unit = "mote-agent.service";
    let condition = "lxd-agent.service.d/not-beside-mote.conf";
    for (name, line) in [(unit, "ExecStart=/"), (condition, "ConditionPathExists=!/")] {
        let text = fs::read_to_string(root.join(units).join(name)).expect("a unit");
        assert!(text.contains(&format!("{line}{program}\n")), "{text}");
    }
    let expected = [program, "usr/lib/mote-agent/respawn 755", "usr/share/doc/mote-agent/"];
    let expected = [&expected[..], &["usr/lib/udev/rules.d/99-mote-agent.rules 644", units], own];
    for name in files(root) {
        assert!(expected.concat().iter().any(|begin| name.starts_with(begin)), "{name}");
    }
}

#[test]
fn the_oci_image_is_for_each_architecture() {
    let (made, oci) = (layers(""), Scratch::new());
    let unpack = |tarball: &Path, into: &Scratch| {
        run(Command::new("tar").arg("-xf").arg(tarball).arg("-C").arg(&into.0));
    };
    unpack(&file(&made.0, "mote-agent-", ".oci.tar"), &oci);
    let index = json(&blob(&oci.0, &json(&oci.0.join("index.json"))["manifests"][0]));
    let mut manifests = index["manifests"].as_array().expect("manifests").clone();
    manifests.sort_by_key(|listed| listed["platform"]["architecture"].to_string());
    assert_eq!(manifests.len(), MACHINES.len());
    for (listed, Machine { debian, elf, .. }) in manifests.iter().zip(MACHINES) {
        let manifest = json(&blob(&oci.0, listed));
        let config = json(&blob(&oci.0, &manifest["config"]));
        assert_eq!(config["architecture"], debian);
        let (layer, root) = (blob(&oci.0, &manifest["layers"][0]), Scratch::new());
        let sum = run(Command::new("sh").args(["-c", "zcat <\"$0\" | sha256sum"]).arg(&layer));
        assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", &sum[..64]));
        unpack(&layer, &root);
        has(&root.0, "usr/sbin/mote-agent", elf, &["usr/lib/mote-agent/services/"]);
        let enabled = root.0.join("usr/lib/systemd/system/multi-user.target.wants");
        assert!(enabled.join("mote-agent.service").is_file(), "the link leads to the unit");
    }
}

#[test]
fn the_extensions_have_only_usr_and_the_same_bytes_each_time() {
    let (made, again) = (layers(""), layers(ELSEWHERE));
    run(Command::new("diff").arg("-r").args([&made.0, &again.0]));
    for Machine { name, systemd, elf, .. } in MACHINES {
        let scratch = Scratch::new();
        let root = scratch.0.join("root");
        let image = file(&made.0, "mote-agent-", &format!("-{name}.raw"));
        run(Command::new("unsquashfs").args(["-q", "-d"]).args([&root, &image]));
        let release = "usr/lib/extension-release.d/extension-release.mote-agent";
        has(&root, "usr/bin/mote-agent", elf, &[release]);
        let text = fs::read_to_string(root.join(release)).expect("the release");
        assert!(text.starts_with(&format!("ID=_any\nARCHITECTURE={systemd}\n")), "{text}");
    }
}

// The package in a Debian root where an agent runs: process 1 is called `init`, sysvinit's scripts
// start the agent, and a host calls it over unix sockets.

const LIMIT: Duration = Duration::from_secs(60);

/// Installs the package, copies what the test needs from `/run`, and ends on request.
const INIT: &str = include_str!("init");

struct Live {
    host: Host,
    init: Process,
    root: Root,
}

impl Live {
    fn start() -> Self {
        let root = Root::new("sysvinit");
        let package = root.take(&deb());
        let package = package.trim_start_matches("/srv/");
        root.program("srv/init", INIT);
        // The real runlevel(8) needs a record of the boot.
        root.program("sbin/runlevel", "#!/bin/sh\necho N 2\n");
        let directory = root.0.0.join("srv");
        let mut host = Host::on_sockets(&directory, &directory.join("vs"), "lxd", &[]);
        host.start();
        let share = host.share.strip_prefix(&root.0.0).expect("a share in the root");
        let options =
            format!("--vsock-unix /srv/vs --flavour lxd --config-dir /{}", share.display());
        put(root.0.0.join("etc/default/mote-agent"), format!("OPTIONS='{options}'\n"));
        let init = Process::start(&mut root.command(true, &["/srv/init", package]));
        let live = Self { host, init, root };
        wait("the package", LIMIT, || live.text("srv/installed"));
        assert_eq!(
            live.text("srv/installed").as_deref(),
            Some("0\n"),
            "{:?}",
            live.text("srv/said")
        );
        live.connected(1);
        let log = fs::metadata(live.root.0.0.join("var/log/mote-agent.log")).expect("its log");
        assert_eq!(log.permissions().mode() & 0o777, 0o600, "the words of commands are in it");
        assert!(live.root.processes().iter().any(|line| line.contains("/usr/sbin/mote-agent")));
        live
    }

    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.0.0.join(path)).ok()
    }

    /// Waits for the given number of CONNECTED lines in the log, because this host has no status
    /// port.
    fn connected(&self, times: usize) {
        let log = || self.text("var/log/mote-agent.log").unwrap_or_default();
        until("CONNECTED", LIMIT, || log().matches(": CONNECTED ").count() >= times);
    }

    fn agent(&self) -> Option<String> {
        let status: Value = serde_json::from_str(&self.text("srv/status")?).ok()?;
        Some(status["pid"].as_u64()?.to_string())
    }

    fn some_agent(&self) -> String {
        wait("an agent", LIMIT, || self.agent()).0
    }

    fn exec(&self, words: &[&str]) -> String {
        self.host.exec(words).expect("a command that succeeds")
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ended = fs::write(self.root.0.0.join("srv/over"), "");
        let _code = self.init.0.wait();
    }
}

#[test]
fn an_upgrade_by_the_host_completes() {
    let live = Live::start();
    let above = live.root.take(&newer());
    let first = live.some_agent();
    // The command waits to reveal a restart after the upgrade.
    let upgrade = format!("dpkg -i {above} && sleep 5 && echo whole");
    let said = live.exec(&["sh", "-c", &upgrade]);
    assert!(said.ends_with("whole\n"), "{said}");
    let waits = "runs a command in this guest; the new program starts after it\n";
    assert!(said.contains(waits), "{said}");
    // The same process executes the new program.
    let program = || live.exec(&["readlink", &format!("/proc/{first}/exe")]);
    assert_eq!(program(), "/usr/sbin/mote-agent (deleted)\n", "the first agent, until then");
    live.connected(2);
    assert_eq!(live.some_agent(), first);
    assert_eq!(program(), "/usr/sbin/mote-agent\n");
    live.exec(&["/etc/init.d/mote-agent", "reload"]);
    live.connected(3);
    assert_eq!(live.some_agent(), first);
}

#[test]
fn a_removal_by_the_host_completes() {
    let live = Live::start();
    let said = live.exec(&["sh", "-c", "dpkg -P mote-agent && sleep 3 && echo whole"]);
    assert!(said.ends_with("whole\n"), "{said}");
    until("the agent's end", LIMIT, || live.agent().is_none());
    let processes = || live.root.processes();
    // /proc also shows the roots of other process namespaces.
    until("its processes' end", LIMIT, || {
        let left = processes();
        left.iter().all(|line| !line.contains("/mote-agent"))
    });
    assert!(!live.root.has("/etc/init.d/mote-agent"));
}

// The recipes of `image/recipes`: their files exist, and their functions run in a shell.

fn recipes() -> PathBuf {
    source().join("image/recipes")
}

fn texts(folder: &Path) -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("one").path());
    let read = |path: PathBuf| {
        if path.is_dir() {
            return texts(&path);
        }
        let text = fs::read_to_string(&path).expect("text");
        vec![(path, text)]
    };
    entries.flat_map(read).collect()
}

#[test]
fn each_recipe_states_its_tests_and_the_current_version() {
    let cargo = fs::read_to_string(source().join("Cargo.toml")).expect("Cargo.toml");
    let version = cargo.split("\nversion = \"").nth(1).and_then(|rest| rest.split('"').next());
    let version = version.expect("a version");
    let texts = texts(&recipes());
    assert!(texts.len() >= 6, "{texts:?}");
    let mut versions = 0;
    for (path, text) in &texts {
        let says = text.matches("# Tested:").count() + text.matches("# Not tested").count();
        // The other files in these directories have only a few lines.
        let is_part = |part: &str| path.components().any(|one| one.as_os_str() == part);
        let alone = (is_part("buildroot") || is_part("conf")) && says == 0;
        assert!(says == 1 || alone, "{}", path.display());
        let words = [
            "pkgver=",
            "VERSION = ",
            "VERSION:=",
            "version = \"",
            "mote-agent-",
            "mote-agent_",
            "mote-agent:",
        ];
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
        fs::create_dir_all(&built).expect("a folder");
        let links = [(agent(), built.join("mote-agent"))].into_iter();
        let own = ["agent", "image", "LICENSE-MIT", "LICENSE-APACHE"].into_iter();
        for (from, to) in links.chain(own.map(|name| (source().join(name), sources.0.join(name)))) {
            symlink(from, to).expect("a link");
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

fn holds(root: &Path, program: &str, list: &str) {
    assert_eq!(files(root), list.lines().map(str::to_owned).collect());
    let built = fs::read(agent()).expect("the agent");
    assert!(fs::read(root.join(program)).expect("the agent") == built);
}

#[test]
fn alpines_package_is_for_openrc() {
    // `dash` supports no more than busybox' shell.
    let made = packaged("dash", "APKBUILD");
    holds(&made.0, "usr/sbin/mote-agent", include_str!("alpine.txt"));
}

#[test]
fn archs_package_is_for_systemd() {
    let made = packaged("bash", "PKGBUILD");
    holds(&made.0, "usr/bin/mote-agent", include_str!("arch.txt"));
}

#[test]
fn nixs_package_installs_the_tarballs_files() {
    let text = fs::read_to_string(recipes().join("nix/package.nix")).expect("the recipe");
    let (_, rest) = text.split_once("installPhase = ''").expect("a phase");
    let (phase, _) = rest.split_once("'';").expect("its end");
    let (sources, made) = (Scratch::new(), Scratch::new());
    let substitute =
        "runHook() { :; }; substituteInPlace() { sed -i \"s|$3|$4|\" \"$1\"; }; set -eu;";
    let mut command = Command::new("bash");
    command.args(["-c", &format!("{substitute}{phase}")]);
    run(command.env("out", &made.0).current_dir(tarball(&sources)));
    let unit =
        fs::read_to_string(made.0.join("lib/systemd/system/mote-agent.service")).expect("the unit");
    let program = made.0.join("bin/mote-agent");
    assert!(unit.contains(&format!("ExecStart={}\n", program.display())), "{unit}");
    assert!(program.exists() && made.0.join("lib/udev/rules.d/99-mote-agent.rules").exists());
}
