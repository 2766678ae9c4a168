//! `mote-compare`, behind `scripts/bench run`: a command in a VM by `mote-host run`, by vmtest and by virtme-ng, of the same kernel
//! on the same machine, one after the other. Writes docs/run-compare.md. What is measured of whom is a row of [`ROWS`].

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use mote_tests::bench::stats::Summary;
use mote_tests::proc::{children, kilobytes, runs};
use mote_tests::vm::PC;
use mote_tests::vm::run::run;
use mote_tests::{noise, tool};
use rustix::process::{Pid, Signal, kill_process};

/// Who is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// QEMU alone: the guest switches itself off as soon as it can.
    Bare,
    Mote,
    Vmtest,
    Vng,
}

const ALL: [By; 4] = [By::Bare, By::Mote, By::Vmtest, By::Vng];
/// Of what takes time.
const ROUNDS: usize = 5;
/// A tool that has not ended by then does not.
const LONGEST: Duration = Duration::from_secs(120);
/// What a command prints when it has begun; no tool that shows the command shows this.
const MARK: &str = "echo MA\"\"RK";
const BYTES: usize = 20 << 20;

/// A row: what it is, how it is measured.
type Row = (&'static str, fn(By) -> String);
/// The first one, which is also measured of the boot alone.
const WHOLE: &str = "`true`, s: median of 5 (least, most)";
const ROWS: [Row; 7] = [
    ("memory of all its processes while a command runs, MiB", size),
    ("exit codes 0, 37, 255, 127", codes),
    ("`seq 1 100000`: stdout; bytes on stderr", numbers),
    ("20 MiB on stdin: arrived as they were?", input),
    ("panic in the command: code, s from the panic on, is it told", panic),
    ("`sleep 1000` and a limit of 5 s: code, s in all", limit),
    ("killed (KILL) while a command runs: left after 1 s", left),
];

impl By {
    /// Runs this in the guest's shell; `more` is for `mote-host run` alone.
    fn command(self, script: &str, more: &[&str]) -> Command {
        let peers = tool("MOTE_PEERS", "target/peers");
        let mut command;
        match self {
            Self::Bare => {
                let image = tool("MOTE_IMAGE", "target/image");
                let (kernel, initrd) = (image.join("vmlinuz"), image.join("initrd"));
                command = Command::new("qemu-system-x86_64");
                command.args(["-nodefaults", "-display", "none", "-no-reboot", "-m", "256"]);
                command.args(["-machine", &format!("{PC},accel=tcg"), "-cpu", "max"]);
                command.args(["-serial", "null"]);
                command.arg("-kernel").arg(kernel).arg("-initrd").arg(initrd).arg("-append");
                command.arg("console=ttyS0 quiet rdinit=/bin/busybox -- poweroff -f");
            }
            Self::Mote => {
                command = run(&std::env::temp_dir(), more, &["sh", "-c", script]);
            }
            Self::Vmtest => {
                let file = peers.join("vmtest.toml");
                let text = format!(
                    "[[target]]\nname = 'x'\nkernel = '{}'\ncommand = '''{script}'''\n[target.vm]\nmemory = \
                     '512M'\nextra_args = ['-initrd', '{}']\n",
                    peers.join("vmlinuz").display(),
                    peers.join("vmtest-initrd").display()
                );
                std::fs::write(&file, text).expect("vmtest's configuration");
                command = Command::new(peers.join("vmtest/bin/vmtest"));
                command.arg("-c").arg(file);
            }
            Self::Vng => {
                let kernel = peers.join("vmlinuz").canonicalize().expect("a kernel");
                command = Command::new(peers.join("vng/bin/vng"));
                command.arg("--run").arg(kernel).args(["--disable-kvm", "--force-9p", "--exec"]);
                command.arg(script);
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The same to its end.
    fn run(self, script: &str, more: &[&str], input: Option<Vec<u8>>) -> Ran {
        let mut command = self.command(script, more);
        let begun = Instant::now();
        let mut child = command.stdin(Stdio::piped()).spawn().expect("a tool");
        let stdin = child.stdin.take().expect("its input");
        let writer = std::thread::spawn(move || feed(stdin, &input.unwrap_or_default()));
        let err = child.stderr.take().expect("its errors");
        let errors = std::thread::spawn(move || all(err));
        let out = child.stdout.take().expect("its output");
        let outs = std::thread::spawn(move || all(out));
        let code = end(&mut child, begun + LONGEST);
        let took = begun.elapsed();
        let (out, err) = (outs.join().expect("output"), errors.join().expect("errors"));
        writer.join().expect("a writer");
        Ran { code, took, out, err }
    }

    /// The same until its command has begun.
    fn begun(self, script: &str) -> (Child, BufReader<ChildStdout>) {
        let mut child = self
            .command(&format!("{MARK}; {script}"), &[])
            .stderr(Stdio::null())
            .spawn()
            .expect("a tool");
        let mut out = BufReader::new(child.stdout.take().expect("its output"));
        let mut line = Vec::new();
        while !line.windows(4).any(|four| four == b"MARK") {
            line.clear();
            assert_ne!(out.read_until(b'\n', &mut line).expect("a line"), 0, "it does not begin");
        }
        (child, out)
    }
}

/// How one went.
struct Ran {
    code: Option<i32>,
    took: Duration,
    out: Vec<u8>,
    err: Vec<u8>,
}

/// A tool that reads nothing closes it.
fn feed(mut stdin: ChildStdin, bytes: &[u8]) {
    let _closed = stdin.write_all(bytes);
}

fn all(mut from: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).expect("what it prints");
    bytes
}

/// Its code if it ends by then; else it and what it started is killed.
fn end(child: &mut Child, by: Instant) -> Option<i32> {
    while Instant::now() < by {
        if let Some(status) = child.try_wait().expect("a child") {
            return Some(status.code().unwrap_or(-1));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    for pid in family(child.id()) {
        end_one(pid);
    }
    child.wait().expect("its end");
    None
}

fn end_one(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process");
    let _gone = kill_process(pid, Signal::KILL);
}

/// A process and those that it or they started.
fn family(pid: u32) -> Vec<u32> {
    let mut family = vec![pid];
    let mut at = 0;
    while let Some(one) = family.get(at).copied() {
        family.extend(children(one));
        at += 1;
    }
    family
}

/// All of them in turn, so that what else the machine does meets all.
fn whole(asked: &[By]) -> Vec<String> {
    let mut times = vec![Vec::new(); asked.len()];
    for _ in 0..ROUNDS {
        for (by, times) in asked.iter().zip(&mut times) {
            times.push(by.run("true", &[], None).took.as_secs_f64());
        }
    }
    let cell = |times: Vec<f64>| {
        let of = Summary::of(&times).expect("samples");
        format!("{:.2} ({:.2}, {:.2})", of.median, of.min, of.max)
    };
    times.into_iter().map(cell).collect()
}

fn size(by: By) -> String {
    let (mut child, _out) = by.begun("sleep 1000");
    // One that has ended, and that nobody has asked for yet, has none.
    let memory = |pid: &u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        kilobytes(&text, "VmRSS:").unwrap_or(0)
    };
    let all: u64 = family(child.id()).iter().map(memory).sum();
    let _ended = end(&mut child, Instant::now());
    format!("{}", all >> 10)
}

fn codes(by: By) -> String {
    let code =
        |script| by.run(script, &[], None).code.map_or("none".into(), |code| code.to_string());
    ["exit 0", "exit 37", "exit 255", "no-such-program"].map(code).join(", ")
}

fn numbers(by: By) -> String {
    let ran = by.run("seq 1 100000", &[], None);
    let exact: String = (1..=100_000).map(|number| format!("{number}\n")).collect();
    let holds = ran.out.windows(exact.len()).any(|part| part == exact.as_bytes());
    let what = match (ran.out == exact.as_bytes(), holds) {
        (true, _) => "exact".to_owned(),
        (_, true) => format!("within {} bytes", ran.out.len()),
        _ => format!("not in {} bytes", ran.out.len()),
    };
    format!("{what}; {}", ran.err.len())
}

fn input(by: By) -> String {
    let bytes = noise(BYTES);
    let ran = by.run("sha256sum", &[], Some(bytes.clone()));
    let mut here = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sha256sum");
    here.stdin.take().expect("its input").write_all(&bytes).expect("its input");
    let sum = here.wait_with_output().expect("sha256sum").stdout;
    let sum = String::from_utf8_lossy(&sum).trim().to_owned();
    if String::from_utf8_lossy(&ran.out).contains(&sum) { "yes" } else { "no" }.to_owned()
}

fn panic(by: By) -> String {
    let script = format!("{MARK}; sleep 1; echo c >/proc/sysrq-trigger; sleep 1000");
    let mut child = by.command(&script, &[]).spawn().expect("a tool");
    let err = child.stderr.take().expect("its errors");
    let errors = std::thread::spawn(move || all(err));
    let mut out = BufReader::new(child.stdout.take().expect("its output"));
    let (mut text, mut line) = (Vec::new(), Vec::new());
    let mut since = None;
    while out.read_until(b'\n', &mut line).expect("a line") != 0 {
        if since.is_none() && line.windows(4).any(|four| four == b"MARK") {
            since = Some(Instant::now());
        }
        text.append(&mut line);
    }
    let code = end(&mut child, Instant::now() + LONGEST);
    let took = since.map(|since| since.elapsed().as_secs_f64() - 1.0);
    text.extend(errors.join().expect("errors"));
    let told = String::from_utf8_lossy(&text).contains("Kernel panic - not syncing");
    let took = took.map_or("what was printed before is lost".into(), |took| format!("{took:.1}"));
    format!(
        "{}, {took}, {}",
        code.map_or("none".into(), |code| code.to_string()),
        if told { "yes" } else { "no" }
    )
}

fn limit(by: By) -> String {
    if by != By::Mote {
        return "no such option".to_owned();
    }
    let ran = by.run("sleep 1000", &["--timeout", "5"], None);
    format!("{}, {:.1}", ran.code.unwrap_or(-1), ran.took.as_secs_f64())
}

fn left(by: By) -> String {
    let (mut child, _out) = by.begun("sleep 1000");
    let mut others = family(child.id());
    others.remove(0);
    child.kill().expect("a child");
    child.wait().expect("its end");
    std::thread::sleep(Duration::from_secs(1));
    let name = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    others.retain(|pid| runs(*pid));
    let names: Vec<_> = others.iter().filter_map(name).map(|name| name.trim().to_owned()).collect();
    others.into_iter().for_each(end_one);
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

impl By {
    fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Mote => "mote",
            Self::Vmtest => "vmtest",
            Self::Vng => "vng",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Bare => "the boot alone",
            Self::Mote => "mote-host run",
            Self::Vmtest => "vmtest",
            Self::Vng => "virtme-ng",
        }
    }
}

fn main() -> ExitCode {
    let only: Vec<String> = std::env::args().skip(1).collect();
    let said = |name: &str| std::env::var(name).unwrap_or_default();
    let is_asked = |by: &By| only.is_empty() || only.iter().any(|name| name == by.name());
    let asked: Vec<By> = ALL.into_iter().filter(is_asked).collect();
    let head = asked.iter().map(|by| format!(" {} |", by.title())).collect::<String>();
    let mut table = format!("| |{head}\n| --- |{}\n", " --- |".repeat(asked.len()));
    let load = || std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = || load().split(' ').next().unwrap_or_default().to_owned();
    let before = load();
    let mut add = |title: &str, cells: Vec<String>| {
        let row = format!("| {title} | {} |\n", cells.join(" | "));
        eprint!("{row}");
        table += &row;
    };
    add(WHOLE, whole(&asked));
    for (title, measure) in ROWS {
        let cell = |by: &By| if *by == By::Bare { String::new() } else { measure(*by) };
        add(title, asked.iter().map(cell).collect());
    }
    if !only.is_empty() {
        return ExitCode::SUCCESS;
    }
    let page = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/run-compare.md"));
    let text = include_str!("compare.md").replace("{table}", &table);
    let text =
        text.replace("{commit}", &said("MOTE_COMMIT")).replace("{about}", &said("MOTE_ABOUT"));
    let text = text.replace("{load}", &format!("{before} before and {} after", load()));
    match std::fs::write(page, text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
