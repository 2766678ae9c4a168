//! The OCI image and the system extensions that `scripts/layers` packs.

use std::path::{Path, PathBuf};
use std::process::Command;

use mote_tests::Scratch;
use serde_json::Value;

use crate::built::{ELSEWHERE, PACKAGES, file, run, source};
use crate::recipes::files;

/// Names of the architectures in OCI images, tarballs and systemd, and their numbers in ELF.
const NAMES: [(&str, &str, &str, u8); 3] = [
    ("amd64", "x86_64", "x86-64", 62),
    ("arm64", "aarch64", "arm64", 183),
    ("riscv64", "riscv64", "riscv64", 243),
];

/// Packs the layers of all tarballs, with these settings of the shell.
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
    assert_eq!(std::fs::metadata(&path).expect("a blob").len(), descriptor["size"]);
    assert!(run(Command::new("sha256sum").arg(&path)).starts_with(sum.expect("a digest")));
    path
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("a file")).expect("JSON")
}

/// Checks the program's machine, the files of systemd, and those whose paths begin with one of
/// `own`.
fn has(root: &Path, program: &str, machine: u8, own: &[&str]) {
    assert_eq!(std::fs::read(root.join(program)).expect("the agent").get(18), Some(&machine));
    let units = "usr/lib/systemd/system";
    let unit = "mote-agent.service";
    let condition = "lxd-agent.service.d/not-beside-mote.conf";
    for (name, line) in [(unit, "ExecStart=/"), (condition, "ConditionPathExists=!/")] {
        let text = std::fs::read_to_string(root.join(units).join(name)).expect("a unit");
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
    assert_eq!(manifests.len(), NAMES.len());
    for (listed, (architecture, _, _, machine)) in manifests.iter().zip(NAMES) {
        let manifest = json(&blob(&oci.0, listed));
        let config = json(&blob(&oci.0, &manifest["config"]));
        assert_eq!(config["architecture"], architecture);
        let (layer, root) = (blob(&oci.0, &manifest["layers"][0]), Scratch::new());
        let sum = run(Command::new("sh").args(["-c", "zcat <\"$0\" | sha256sum"]).arg(&layer));
        assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", &sum[..64]));
        unpack(&layer, &root);
        has(&root.0, "usr/sbin/mote-agent", machine, &["usr/lib/mote-agent/services/"]);
        let enabled = root.0.join("usr/lib/systemd/system/multi-user.target.wants");
        assert!(enabled.join("mote-agent.service").is_file(), "the link leads to the unit");
    }
}

#[test]
fn the_extensions_have_only_usr_and_the_same_bytes_each_time() {
    let (made, again) = (layers(""), layers(ELSEWHERE));
    run(Command::new("diff").arg("-r").args([&made.0, &again.0]));
    for (_, name, systemd, machine) in NAMES {
        let scratch = Scratch::new();
        let root = scratch.0.join("root");
        let image = file(&made.0, "mote-agent-", &format!("-{name}.raw"));
        run(Command::new("unsquashfs").args(["-q", "-d"]).args([&root, &image]));
        let release = "usr/lib/extension-release.d/extension-release.mote-agent";
        has(&root, "usr/bin/mote-agent", machine, &[release]);
        let text = std::fs::read_to_string(root.join(release)).expect("the release");
        assert!(text.starts_with(&format!("ID=_any\nARCHITECTURE={systemd}\n")), "{text}");
    }
}
