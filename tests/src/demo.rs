//! What `scripts/run` shows: the main job, step by step, with the time since power-on. Ends with
//! success only if each step was seen.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use mote_tests::host::{Host, NAME};
use mote_tests::vm::{Spec, Vm};
use mote_tests::{Scratch, wait};

/// For each step; software emulation on a busy machine is slow.
const STEP: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let scratch = Scratch::new();
    let directory = scratch.0.as_path();
    println!("mote: a VM boots with the agent in it; mote-host plays the LXD host\n");
    let config = ["--config", "user.greeting=hello from the host"];
    let mut host = Host::of_vm(directory, &Spec::default(), "lxd", &config);
    host.start();
    if std::env::args().any(|arg| arg == "--shell") {
        let words = "mote.shell=console".into();
        let spec = Spec { words, terminal: true, ..Spec::default() };
        Vm::boot(directory, &spec, &host.share).ended(Duration::MAX);
        return ExitCode::SUCCESS;
    }
    run(directory, &mut host);
    println!("\nEach step was seen.");
    ExitCode::SUCCESS
}

fn run(directory: &Path, host: &mut Host) {
    let begun = Instant::now();
    let say = |what: &str, text: &str| {
        println!("  {:7.3} s  {what:<12} {text}", begun.elapsed().as_secs_f64());
    };
    let mut vm = Vm::boot(directory, &Spec::default(), &host.share);
    say("power on", "QEMU, 128 MiB, software emulation");
    let line = |vm: &Vm, mark: &str| -> String {
        let find = || vm.console().lines().find(|line| line.contains(mark)).map(str::to_owned);
        let line = wait(mark, STEP, find).0;
        line.split(": info: ").last().unwrap_or(&line).trim().to_owned()
    };
    say("port found", &line(&vm, "info: port"));
    let in_log = |host: &Host, mark: &str, times: usize| {
        wait(mark, STEP, || (host.log().matches(mark).count() >= times).then_some(()));
    };
    in_log(host, "agent STARTED", 1);
    say("STARTED", "the host has read it from the ring buffer");
    say("told", &line(&vm, "by PUT"));
    let _how_long = host.connected(STEP);
    say("CONNECTED", &line(&vm, "info: CONNECTED"));
    let mut guest = vm.guest();
    let greeting = guest.ok("mote-agent get user.greeting");
    assert_eq!(greeting.trim(), "hello from the host");
    say("devlxd", &format!("in the guest: mote-agent get user.greeting -> {}", greeting.trim()));
    guest.ok("mote-agent ready");
    let status = |host: &Host| host.state()["status"].as_str().map(str::to_owned);
    assert_eq!(status(host).as_deref(), Some("Ready"));
    say("Ready", &format!("set in the guest; the host shows {NAME} as Ready"));
    from_the_host(directory, host, &say);
    host.kill();
    say("host killed", "SIGKILL");
    std::thread::sleep(Duration::from_secs(2));
    host.start();
    let back = Instant::now();
    say("host back", "on another port, Ready forgotten");
    let took = host.connected(STEP);
    say("CONNECTED", &format!("{:.3} s after the host was back", took.as_secs_f64()));
    wait("Ready", STEP, || (status(host).as_deref() == Some("Ready")).then_some(()));
    let took = back.elapsed().as_secs_f64();
    say("Ready", &format!("replayed by the agent {took:.3} s after the host was back"));
    guest.send("poweroff");
    wait("STOPPED", STEP, || (host.state()["state"] == "STOPPED").then_some(()));
    say("STOPPED", "seen by the host at power-off");
    vm.ended(STEP);
}

/// What an administrator does: run something, move a file, ask how the guest is.
fn from_the_host(directory: &Path, host: &Host, say: &impl Fn(&str, &str)) {
    let kernel = host.run(&["exec", "-T", "-n", NAME, "--", "uname", "-sr"]);
    assert!(kernel.starts_with("Linux "), "{kernel}");
    say("exec", &format!("on the host: mote-host exec {NAME} -- uname -sr -> {}", kernel.trim()));
    let (there, back) = (directory.join("there"), directory.join("back"));
    let bytes: Vec<u8> = (0u32..1 << 18).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&there, &bytes).expect("a file");
    let path = |path: &Path| path.display().to_string();
    host.ok(&["file", "push", NAME, &path(&there), "/tmp/file"]);
    host.ok(&["file", "pull", NAME, "/tmp/file", &path(&back)]);
    assert!(std::fs::read(&back).expect("the file") == bytes, "the file came back changed");
    say("files", "1 MiB pushed and pulled over SFTP, unchanged");
    let state: serde_json::Value =
        serde_json::from_str(&host.run(&["state", NAME, "--json"])).expect("JSON");
    let (processes, used) = (&state["processes"], state["memory"]["usage"].as_u64());
    let used = used.expect("a number") >> 20;
    say("state", &format!("{processes} processes, {used} MiB of memory in use"));
}
