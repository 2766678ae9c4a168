//! `mote-host run` with the test image, for tests that need only a command's result.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::Spec;
use crate::{slowdown, tool};

/// Returns a run of the test image, whose shell is on the console. Files are in this directory.
pub fn run(scratch: &Path, options: &[&str], command: &[&str]) -> Command {
    let image = Spec::default().image;
    let mut run = Command::new(tool("MOTE_HOST", "target/debug/mote-host"));
    run.args(["run", "--accel", "tcg", "--append", "mote.shell=console", "--kernel"]);
    run.arg(image.join("vmlinuz")).arg("--initrd").arg(image.join("initrd"));
    run.args(architecture()).args(options).arg("--").args(command);
    run.env("MOTE_VSOCK", tool("MOTE_VSOCK", "target/vhost-device-vsock"));
    run.env("MOTE_HOST_VIRTIOFSD", tool("MOTE_VIRTIOFSD", "/usr/lib/qemu/virtiofsd"));
    run.env(mote_machine::SLOWDOWN, slowdown().to_string());
    run.env("TMPDIR", scratch);
    run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    run
}

/// Returns `--arch` if the image is for another architecture.
pub fn architecture() -> Vec<String> {
    std::env::var("MOTE_ARCH").map_or_else(|_| Vec::new(), |arch| vec!["--arch".into(), arch])
}

/// Returns stdout, stderr and the exit code.
pub fn output(mut run: Command) -> (String, String, Option<i32>) {
    let output = crate::bounded(&mut run).and_then(Child::wait_with_output).expect("mote-host");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}
