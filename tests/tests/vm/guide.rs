//! Runs commands of pages as written: docs/how-to/initramfs.md builds and boots an initramfs,
//! docs/tutorial.md boots an image.

use std::path::Path;
use std::process::Command;

use mote_tests::{Scratch, Spec};

use crate::recipe::{Group, path_with_tools};

/// The example's first command here; the earlier ones fetch and build what already exists.
const FIRST: &str = "cp \"kernel/boot/vmlinuz-$version\" vmlinuz\n";

/// Returns the commands of a page between two headings.
fn commands(page: &str, from: &str, before: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(page);
    let page = std::fs::read_to_string(page).expect("the page");
    let (_, part) = page.split_once(from).expect("the first heading");
    let (part, _) = part.split_once(before).expect("the next heading");
    let blocks = part.split("```sh\n").skip(1).filter_map(|block| block.split("```").next());
    blocks.collect()
}

/// Returns the unpacked kernel package that the test image also uses.
fn kernel() -> (String, String) {
    let cache = std::env::var("XDG_CACHE_HOME")
        .unwrap_or_else(|_| format!("{}/.cache", std::env::var("HOME").expect("a home")));
    let kernel = format!("{cache}/mote/kernel");
    let mut versions = std::fs::read_dir(format!("{kernel}/lib/modules")).expect("a kernel");
    let version = versions.next().expect("a kernel").expect("its name").file_name();
    (kernel, version.to_string_lossy().into_owned())
}

#[test]
fn the_initramfs_example_works_as_written() {
    let scratch = Scratch::new();
    let (kernel, version) = kernel();
    std::os::unix::fs::symlink(kernel, scratch.0.join("kernel")).expect("a link");
    let agent =
        mote_tests::tool("MOTE_AGENT", "target/small/x86_64-unknown-linux-musl/release/mote-agent");
    let all = commands("how-to/initramfs.md", "\n## Build your own\n", "\n## ");
    let at = all.find(FIRST).expect("the first command that is run");
    let script = format!("set -e\nversion={version}\nagent={}\n{}", agent.display(), &all[at..]);
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).current_dir(&scratch.0).env("PATH", path_with_tools());
    let (output, code) = Group::run(bash, &scratch.0.join("output"));
    let console = std::fs::read_to_string(scratch.0.join("console")).unwrap_or_default();
    assert!(code == Some(0), "exit code {code:?}\n{output}\n--- console\n{console}");
    for said in [
        &format!("Linux {version}\n"),
        "\nhello\n",
        "Status       Ready\n",
        "mote: info: CONNECTED 2:",
        "exit code 129: the guest is gone\n",
    ] {
        assert!(output.contains(said), "{said} in {output}");
    }
}

#[test]
fn the_tutorial_works_as_written() {
    let scratch = Scratch::new();
    let image = Spec::default().image;
    for name in ["vmlinuz", "initrd"] {
        std::os::unix::fs::symlink(image.join(name), scratch.0.join(name)).expect("a link");
    }
    // By default the test image has a shell on a second port and ignores the power button.
    let mut all = commands("tutorial.md", "\n## Boot\n", "\n## Next\n");
    for (of_page, of_test) in [
        ("--initrd initrd", "--initrd initrd --append mote.shell=console"),
        ("mote-host stop vm1", "mote-host stop --force vm1"),
    ] {
        assert_eq!(all.matches(of_page).count(), 1, "{of_page}");
        all = all.replace(of_page, of_test);
    }
    let script = format!("set -e\ntrap 'mote-host delete --force vm1 || true' ERR\n{all}");
    let mut bash = Command::new("bash");
    bash.args(["-Ec", &script]).current_dir(&scratch.0).env("PATH", path_with_tools());
    bash.env("MOTE_HOST_ACCEL", "tcg");
    let (output, code) = Group::run(bash, &scratch.0.join("output"));
    assert!(code == Some(0), "exit code {code:?}\n{output}");
    for said in
        ["\nhi\n", "\nhello\n", "ok       agent: running, CONNECTED\n", "Status       Ready\n"]
    {
        assert!(output.contains(said), "{said} in {output}");
    }
}
