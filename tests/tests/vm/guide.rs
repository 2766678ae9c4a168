//! The example of docs/how-to/initramfs.md, run as it is written there: own initramfs, boot, CONNECTED, Ready.

use std::path::Path;
use std::process::Command;

use mote_tests::Scratch;

use crate::recipe::{Group, path_with_tools};

/// The commands of the example from this one on: those before it fetch and build what is here already.
const FIRST: &str = "cp \"kernel/boot/vmlinuz-$version\" vmlinuz\n";

/// The example's commands, in order.
fn commands() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/how-to/initramfs.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let (_, example) = page.split_once("\n## Build your own\n").expect("the example");
    let (example, _) = example.split_once("\n## ").expect("its end");
    let blocks = example.split("```sh\n").skip(1).filter_map(|block| block.split("```").next());
    let all: String = blocks.collect();
    let at = all.find(FIRST).expect("the first command that is run");
    all[at..].to_owned()
}

/// The unpacked kernel package, of which the test image is made too.
fn kernel() -> (String, String) {
    let cache = std::env::var("XDG_CACHE_HOME")
        .unwrap_or_else(|_| format!("{}/.cache", std::env::var("HOME").expect("a home")));
    let kernel = format!("{cache}/mote/kernel");
    let mut versions = std::fs::read_dir(format!("{kernel}/lib/modules")).expect("a kernel");
    let version = versions.next().expect("a kernel").expect("its name").file_name();
    (kernel, version.to_string_lossy().into_owned())
}

#[test]
fn the_example_of_the_page_works_as_it_is_written() {
    let scratch = Scratch::new();
    let (kernel, version) = kernel();
    std::os::unix::fs::symlink(kernel, scratch.0.join("kernel")).expect("a link");
    let agent =
        mote_tests::tool("MOTE_AGENT", "target/small/x86_64-unknown-linux-musl/release/mote-agent");
    let script = format!("set -e\nversion={version}\nagent={}\n{}", agent.display(), commands());
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
