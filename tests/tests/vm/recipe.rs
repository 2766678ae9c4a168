//! How a VM is booted, as `mote-host init` prints it: pasted into a shell as it is, it gives a VM whose
//! agent is CONNECTED.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use mote_tests::host::{Host, NAME};
use mote_tests::vm::Spec;
use mote_tests::{Process, Scratch, patient, tool, wait};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::world::BOOT;

/// A shell and all that it started; ended when dropped.
pub(crate) struct Group(Process);

impl Group {
    /// Starts it, with its output in a file.
    fn start(mut bash: Command, output: &Path) -> Self {
        let output = File::create(output).expect("a file");
        bash.stdin(Stdio::piped()).stdout(output.try_clone().expect("a copy")).stderr(output);
        Self(Process::start(bash.process_group(0)))
    }

    /// Waits for its end; what it printed, and its exit code.
    pub(crate) fn run(bash: Command, output: &Path) -> (String, Option<i32>) {
        let mut group = Self::start(bash, output);
        let (status, _) = wait("its end", 6 * BOOT, || group.0.0.try_wait().expect("a child"));
        (std::fs::read_to_string(output).unwrap_or_default(), status.code())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _gone = kill_process_group(Pid::from_child(&self.0.0), Signal::KILL);
    }
}

/// Where shells find `mote-host` and `vhost-device-vsock`.
pub(crate) fn path_with_tools() -> String {
    let tools =
        [("MOTE_HOST", "target/debug/mote-host"), ("MOTE_VSOCK", "target/vhost-device-vsock")];
    let tools = tools.map(|(name, usual)| tool(name, usual));
    let directories = tools.iter().filter_map(|tool| tool.parent());
    let directories: Vec<String> = directories.map(|path| path.display().to_string()).collect();
    format!("{}:{}", directories.join(":"), std::env::var("PATH").expect("a path"))
}

/// Pastes the text; kernel and initrd are where it expects them.
fn paste(directory: &Path, text: &str) -> Group {
    let image = Spec::default().image;
    for name in ["vmlinuz", "initrd"] {
        symlink(image.join(name), directory.join(name)).expect("a link");
    }
    let mut bash = Command::new("bash");
    bash.args(["-ec", text]).current_dir(directory).env("PATH", path_with_tools());
    Group::start(bash, &directory.join("console"))
}

#[test]
fn a_vm_booted_as_init_says_connects_under_each_server() {
    for (flavour, seen) in [("lxd", "(lxd)"), ("lxd-5.0", "(lxd-5.0)"), ("incus", "(incus)")] {
        let scratch = Scratch::new();
        let directory = scratch.0.as_path();
        let mut host = Host::new(directory, &["--flavour", flavour]);
        host.start();
        let text = host.run(&["qemu", NAME, "--memory", "128"]);
        // The test image has its shell on a second port, unless it is told that it has none.
        let text = text.replace("panic=-1'", "panic=-1 mote.shell=console'");
        let vm = paste(directory, &text);
        let limit = patient(BOOT).as_secs().to_string();
        let console = || std::fs::read_to_string(directory.join("console")).unwrap_or_default();
        let waited = host.try_run(&["wait", NAME, "--for", "CONNECTED", "--timeout", &limit]);
        assert!(waited.is_ok(), "{waited:?}\n{}\n{text}", console());
        assert!(console().contains(&format!("vport0p1 {seen}")), "{}", console());
        if flavour == "lxd-5.0" {
            // It had no Ready yet.
            let error = host.try_run(&["wait", NAME, "--for", "Ready", "--timeout", "0"]);
            assert!(error.unwrap_err().contains("before 5.20 has no Ready"));
        } else {
            host.ok(&["exec", "-n", NAME, "--", "mote-agent", "ready"]);
            host.ok(&["wait", NAME, "--for", "Ready", "--timeout", "60"]);
        }
        drop(vm);
        wait("STOPPED", Duration::from_secs(10), || {
            (host.state()["state"] == "STOPPED").then_some(())
        });
    }
}
