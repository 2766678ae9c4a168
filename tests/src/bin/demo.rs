//! What `scripts/run` shows: the main job, step by step, with the time since power-on. Ends with
//! success only if each step was seen; else it says which was not, and what to look at.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use mote_tests::guest::Guest;
use mote_tests::host::{Host, NAME};
use mote_tests::vm::{Spec, Vm};
use mote_tests::{Scratch, wait};

/// For each step; software emulation on a busy machine is slow. What cannot come any more is not waited for.
const STEP: Duration = Duration::from_secs(120);
/// How much of a log is shown to who wonders why a step failed.
const LINES: usize = 15;

/// A step, as whoever sees it fail reads it.
struct Step {
    name: &'static str,
    expected: &'static str,
    /// What is the likely cause, or where to look.
    hint: &'static str,
}

impl Step {
    const fn new(name: &'static str, expected: &'static str, hint: &'static str) -> Self {
        Self { name, expected, hint }
    }
}

const SET_UP: Step = Step::new(
    "set-up",
    "mote-host makes an instance and its daemon answers",
    "run target/debug/mote-host by hand; is there room in TMPDIR?",
);
const POWER_ON: Step = Step::new(
    "power on",
    "vhost-device-vsock and QEMU start",
    "scripts/run installs both; is there memory for a VM of 128 MiB?",
);
const PORT: Step = Step::new(
    "port found",
    "the agent starts and finds its port",
    "can the guest execute this agent? 'scripts/prove AGENT limit' says whether it is static",
);
const STARTED: Step = Step::new(
    "STARTED",
    "the host reads STARTED from the port's ring buffer",
    "the agent's own lines are on the console below",
);
const TOLD: Step = Step::new(
    "told",
    "the host calls the agent over vsock and tells it where the host is",
    "the host's log below says whether it could call; vhost-device-vsock carries the call",
);
const CONNECTED: Step = Step::new(
    "CONNECTED",
    "the agent reaches the host, and the host knows",
    "a vsock in one direction only, or another certificate: the agent says so below",
);
const DEVLXD: Step = Step::new(
    "devlxd",
    "a program in the guest gets a value of the instance's configuration",
    "'scripts/run --shell', then 'mote-agent get user.greeting'",
);
const READY: Step = Step::new(
    "Ready",
    "Ready, set in the guest, is shown by the host",
    "'scripts/run --shell', then 'mote-agent ready'",
);
const EXEC: Step = Step::new(
    "exec",
    "a command of the host runs in the guest",
    "the error is mote-host's; the agent's lines are below",
);
const FILES: Step = Step::new(
    "files",
    "a file of 1 MiB goes into the guest and comes back unchanged",
    "a broken pipe here is a vsock device that loses long packets",
);
const STATE: Step =
    Step::new("state", "the agent reports processes and memory", "the agent's lines are below");
const BACK: Step = Step::new(
    "host back",
    "the host, killed and started again, is CONNECTED again",
    "the host's log below says whether the agent called",
);
const REPLAYED: Step = Step::new(
    "Ready again",
    "the agent tells the new host by itself that the instance is Ready",
    "the agent's lines are below",
);
const STOPPED: Step = Step::new(
    "STOPPED",
    "the host reads STOPPED when the guest is switched off, and QEMU ends",
    "the agent's last lines are below",
);

fn main() -> ExitCode {
    let scratch = Scratch::new();
    let directory = scratch.0.as_path();
    println!("mote: a VM boots with the agent in it; mote-host plays the LXD host\n");
    // What a step failed by is told below, without the place in this program's source.
    std::panic::set_hook(Box::new(|_| {}));
    let is_one_file = std::env::args().any(|arg| arg == "--one-file");
    let (begun, step) = (Instant::now(), &SET_UP);
    let mut demo = Demo { directory, begun, step, is_one_file, vm: None, guest: None };
    match catch_unwind(AssertUnwindSafe(|| demo.run())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(thrown) => {
            demo.explain(&words(thrown.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// What somebody panicked with.
fn words(thrown: &(dyn Any + Send)) -> String {
    let text = thrown.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| thrown.downcast_ref::<&str>().copied()).unwrap_or("an unknown error").into()
}

struct Demo<'d> {
    directory: &'d Path,
    begun: Instant,
    step: &'static Step,
    /// Whether the image has nothing but the agent: no shell, and no `uname`.
    is_one_file: bool,
    vm: Option<Vm>,
    guest: Option<Guest>,
}

impl Demo<'_> {
    fn run(&mut self) {
        let config = ["--config", "user.greeting=hello from the host"];
        let mut host = Host::of_vm(self.directory, &Spec::default(), "lxd", &config);
        host.start();
        self.show(&mut host);
        println!("\nEach step was seen.");
    }

    fn show(&mut self, host: &mut Host) {
        self.start(host);
        if self.is_one_file {
            self.in_one_file(host);
        } else {
            self.in_the_guest(host);
        }
        self.by_the_host(host);
        self.without_the_host(host);
        self.off(host);
    }

    fn say(&self, what: &str, text: &str) {
        println!("  {:7.3} s  {what:<12} {text}", self.begun.elapsed().as_secs_f64());
    }

    /// Waits for what the step is about, or until it cannot come any more.
    fn wait<T>(&mut self, mut look: impl FnMut(&Vm) -> Option<T>) -> T {
        let vm = self.vm.as_mut().expect("the VM");
        let look = || {
            let found = look(vm);
            if let (None, Some(why)) = (&found, over(vm)) {
                panic!("{why}");
            }
            found
        };
        wait("what is expected", STEP, look).0
    }

    /// A line of the agent's on the console.
    fn line(&mut self, mark: &str) -> String {
        let find =
            |vm: &Vm| vm.console().lines().find(|line| line.contains(mark)).map(str::to_owned);
        let line = self.wait(find);
        line.split(": info: ").last().unwrap_or(&line).trim().to_owned()
    }

    fn start(&mut self, host: &Host) {
        self.begun = Instant::now();
        self.step = &POWER_ON;
        self.vm = Some(Vm::boot(self.directory, &Spec::default(), &host.share));
        self.say("power on", "QEMU, 128 MiB, software emulation");
        self.step = &PORT;
        let port = self.line("info: port");
        self.say("port found", &port);
        self.step = &STARTED;
        self.wait(|_| host.log().contains("agent STARTED").then_some(()));
        self.say("STARTED", "the host has read it from the ring buffer");
        self.step = &TOLD;
        let told = self.line("(from PUT)");
        self.say("told", &told);
        self.step = &CONNECTED;
        self.wait(|_| host.is_connected().then_some(()));
        let connected = self.line("info: CONNECTED");
        self.say("CONNECTED", &connected);
    }

    /// The same where the guest has no shell: the host starts the agent's own commands.
    fn in_one_file(&mut self, host: &Host) {
        self.step = &EXEC;
        let command = |words: &[&str]| {
            let output = host.run(&[&["exec", "-T", "-n", NAME, "--"], words].concat());
            output.trim().to_owned()
        };
        let version = command(&["/init", "--version"]);
        self.say(
            "exec",
            &format!("on the host: mote-host exec {NAME} -- /init --version -> {version}"),
        );
        self.step = &DEVLXD;
        let greeting = command(&["mote-agent", "get", "user.greeting"]);
        assert_eq!(greeting, "hello from the host");
        self.say("devlxd", &format!("in the guest: mote-agent get user.greeting -> {greeting}"));
        self.step = &READY;
        command(&["mote-agent", "ready"]);
        assert_eq!(status(host).as_deref(), Some("Ready"));
        self.say("Ready", &format!("set in the guest; the host shows {NAME} as Ready"));
    }

    fn in_the_guest(&mut self, host: &Host) {
        self.step = &DEVLXD;
        let mut guest = self.vm.as_mut().expect("the VM").guest();
        let greeting = guest.ok("mote-agent get user.greeting");
        let greeting = greeting.trim();
        assert_eq!(greeting, "hello from the host");
        self.say("devlxd", &format!("in the guest: mote-agent get user.greeting -> {greeting}"));
        self.step = &READY;
        guest.ok("mote-agent ready");
        assert_eq!(status(host).as_deref(), Some("Ready"));
        self.say("Ready", &format!("set in the guest; the host shows {NAME} as Ready"));
        self.guest = Some(guest);
    }

    /// What an administrator does: run something, move a file, ask how the guest is.
    fn by_the_host(&mut self, host: &Host) {
        if !self.is_one_file {
            self.step = &EXEC;
            let kernel = host.run(&["exec", "-T", "-n", NAME, "--", "uname", "-sr"]);
            assert!(kernel.starts_with("Linux "), "{kernel}");
            let kernel = kernel.trim();
            self.say(
                "exec",
                &format!("on the host: mote-host exec {NAME} -- uname -sr -> {kernel}"),
            );
        }
        self.step = &FILES;
        let (there, back) = (self.directory.join("there"), self.directory.join("back"));
        let bytes: Vec<u8> = (0u32..1 << 18).flat_map(u32::to_le_bytes).collect();
        std::fs::write(&there, &bytes).expect("a file");
        let path = |path: &Path| path.display().to_string();
        host.ok(&["file", "push", NAME, &path(&there), "/tmp/file"]);
        host.ok(&["file", "pull", NAME, "/tmp/file", &path(&back)]);
        assert!(std::fs::read(&back).expect("the file") == bytes, "the file came back changed");
        self.say("files", "1 MiB pushed and pulled over SFTP, unchanged");
        self.step = &STATE;
        let state: serde_json::Value =
            serde_json::from_str(&host.run(&["state", NAME, "--json"])).expect("JSON");
        let (processes, used) = (&state["processes"], state["memory"]["usage"].as_u64());
        let used = used.expect("a number") >> 20;
        self.say("state", &format!("{processes} processes, {used} MiB of memory in use"));
    }

    fn without_the_host(&mut self, host: &mut Host) {
        self.step = &BACK;
        host.kill();
        self.say("host killed", "SIGKILL");
        std::thread::sleep(Duration::from_secs(2));
        host.start();
        let back = Instant::now();
        self.say("host back", "on another port, Ready forgotten");
        let since = || back.elapsed().as_secs_f64();
        self.wait(|_| host.is_connected().then_some(()));
        self.say("CONNECTED", &format!("{:.3} s after the host was back", since()));
        self.step = &REPLAYED;
        self.wait(|_| (status(host).as_deref() == Some("Ready")).then_some(()));
        let took = since();
        self.say("Ready", &format!("replayed by the agent {took:.3} s after the host was back"));
    }

    fn off(&mut self, host: &Host) {
        self.step = &STOPPED;
        match self.guest.as_mut() {
            Some(guest) => guest.send("poweroff"),
            None => self.vm.as_ref().expect("the VM").power_button(),
        }
        wait("what is expected", STEP, || (host.state()["state"] == "STOPPED").then_some(()));
        let how = if self.is_one_file { "the power button" } else { "power-off" };
        self.say("STOPPED", &format!("seen by the host at {how}"));
        self.vm.as_mut().expect("the VM").ended(STEP);
    }

    /// Says what failed, beside what was expected.
    fn explain(&self, why: &str) {
        let Step { name, expected, hint } = self.step;
        println!("\nFAILED: {name}, after {:.1} s", self.begun.elapsed().as_secs_f64());
        println!("  expected  {expected}");
        println!("  but       {}", why.trim().replace('\n', "\n            "));
        let end_of = |what: &str, file: &str| {
            let bytes = std::fs::read(self.directory.join(file)).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
            if !lines.is_empty() {
                println!("\n{what}, last lines:");
            }
            for line in lines.iter().skip(lines.len().saturating_sub(LINES)) {
                // It is the guest's text, and this may be a terminal.
                println!("  | {}", line.replace(char::is_control, ""));
            }
        };
        end_of("the guest's console", "console");
        end_of("mote-host", "host/daemon.log");
        end_of("QEMU", "qemu.log");
        end_of("vhost-device-vsock", "vhost.log");
        println!("\nWhat to try: {hint}.");
        println!(
            "MOTE_KEEP=1 scripts/run keeps all files of it; 'scripts/run --shell' is a shell in the guest."
        );
    }
}

/// The instance's status as the host shows it.
fn status(host: &Host) -> Option<String> {
    host.state()["status"].as_str().map(str::to_owned)
}

/// Why nothing more is to be expected of a VM.
fn over(vm: &mut Vm) -> Option<String> {
    let console = vm.console();
    let end = |mark: &str| console.lines().find(|line| line.contains(mark)).map(str::to_owned);
    if let Some(line) = end("agent ended with exit code") {
        return Some(format!("the {}", line.trim()));
    }
    if let Some(line) = end("Kernel panic") {
        return Some(format!("the guest is gone: {}", line.trim()));
    }
    vm.has_ended().then(|| "QEMU has ended".to_owned())
}
