//! The demonstration where it cannot work: what the user reads then.

use std::path::Path;
use std::process::Command;

use mote_tests::Scratch;

/// Packs an image around an agent, and gives the demonstration's exit code and what it prints.
fn demo(agent: &Path) -> (Option<i32>, String) {
    let scratch = Scratch::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../image/initramfs");
    let packed = Command::new(script).arg(&scratch.0).arg(agent).status().expect("image/initramfs");
    assert!(packed.success());
    let output = Command::new(env!("CARGO_BIN_EXE_mote-demo"))
        .env("MOTE_IMAGE", &scratch.0)
        .env("RUST_BACKTRACE", "1")
        .output()
        .expect("mote-demo");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

fn says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word:?} is missing in\n{text}");
    }
    for word in ["panicked", "backtrace", "Each step was seen", ".rs:"] {
        assert!(!text.contains(word), "{word:?} is in\n{text}");
    }
}

#[test]
fn an_agent_that_needs_a_file_of_the_hosts_is_told_as_the_guest_tells_it() {
    let (code, text) = demo(Path::new("/bin/true"));
    assert_eq!(code, Some(1), "{text}");
    says(
        &text,
        &[
            "FAILED: port found",
            "expected  the agent starts and finds its port",
            "but       the agent ended with exit code 127",
            "the guest's console, last lines:",
            "mote-agent: not found\n  | agent ended with exit code 127",
            "What to try: can the guest execute this agent?",
        ],
    );
}

#[test]
fn an_agent_that_does_nothing_is_not_waited_for() {
    let scratch = Scratch::new();
    let agent = scratch.0.join("agent");
    std::fs::write(&agent, "#!/bin/sh\nexit 7\n").expect("an agent");
    let (code, text) = demo(&agent);
    assert_eq!(code, Some(1), "{text}");
    says(&text, &["FAILED: port found", "the agent ended with exit code 7"]);
}

#[test]
fn without_qemu_the_step_says_so() {
    let output = Command::new(env!("CARGO_BIN_EXE_mote-demo")).env("PATH", "/nowhere").output();
    let output = output.expect("mote-demo");
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    says(&text, &["FAILED: ", "No such file or directory", "What to try: "]);
}
