//! The outer VM: a machine with `/dev/kvm` and vhost-vsock that contains the real server.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::prelude::*;
use crate::run;

/// Limit for silence. The longest check has waits of up to 15 minutes; none took a third of this.
const SILENCE: Duration = Duration::from_secs(1800);
const LOOK: Duration = Duration::from_millis(200);
/// Memory of the outer VM, MiB: the server, one instance, and its disk in the page cache.
const MEMORY: u32 = 3072;
/// Size of the second disk, in bytes: the checks' program, a kernel and an image take less.
const PAYLOAD: u64 = 160 << 20;

/// The parts of an outer VM.
#[derive(Clone, Debug, Args)]
pub struct Spec {
    /// Directory with `vmlinuz`, `initrd`, `disk.raw`, and the stored states.
    #[arg(long, hide = true, default_value = ".")]
    pub outer: PathBuf,
    /// Directory tree that contains QEMU.
    #[arg(long, hide = true, default_value = ".")]
    pub emulator: PathBuf,
    /// Library that slows its clock if it is emulated: `image/servers/clock.c`.
    #[arg(long, hide = true, default_value = ".")]
    pub clock: PathBuf,
    /// Uses this machine's /dev/kvm, with nested virtualisation; never the default
    #[arg(long)]
    pub kvm: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The run ended; the text is empty, or the reason why it is incomplete.
    Over(String),
    /// The VM was reset or fell silent, QEMU crashed, or the time limit expired.
    Lost(String),
}

pub struct Outer {
    qemu: Child,
    directory: PathBuf,
    read: usize,
    pub begun: Instant,
}

impl Outer {
    /// Starts a VM that runs `start` next to these files. Its disk is discarded, unless it is kept.
    pub fn start(
        spec: &Spec,
        directory: &Path,
        start: &str,
        files: &[&Path],
        from: &From,
    ) -> Try<Self> {
        let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
        let _old = fs::remove_dir_all(directory);
        fs::create_dir_all(directory).map_err(failed)?;
        let script = directory.join("start");
        fs::write(&script, start).map_err(failed)?;
        pack(&directory.join("payload.tar"), &script, files)?;
        let disk = match from {
            From::Power => {
                format!("file={},format=raw,snapshot=on", spec.outer.join("disk.raw").display())
            }
            From::PowerKept(kept) => format!("file={},format=qcow2,cache=unsafe", kept.display()),
            From::Kept(kept) => format!("file={},format=qcow2,snapshot=on", kept.display()),
        };
        let mut command = qemu(spec);
        if let From::Kept(kept) = from {
            command.args(["-incoming", &format!("file:{}", state_of(kept).display())]);
        }
        // The trace `resets` logs the registers at a reset.
        let words = "-chardev file,id=report,path=report -device virtio-serial-pci \
            -device virtserialport,chardev=report,name=mote.report -serial file:console \
            -qmp unix:qmp,server=on,wait=off -d cpu_reset -D resets \
            -drive file=payload.tar,format=raw,if=virtio,readonly=on";
        command
            .current_dir(directory)
            .args(["-drive", &format!("{disk},if=virtio")])
            .args(words.split_whitespace())
            .args(["-netdev", "user,id=net,restrict=on"])
            .stdin(Stdio::null())
            .stdout(File::create(directory.join("qemu")).map_err(failed)?)
            .stderr(File::create(directory.join("qemu.err")).map_err(failed)?);
        let qemu = command.spawn().map_err(|error| format!("QEMU: {error}"))?;
        Ok(Self { qemu, directory: directory.into(), read: 0, begun: Instant::now() })
    }

    /// Receives lines until it ends, or until `until`.
    pub fn hear(&mut self, until: Instant, mut each: impl FnMut(Line)) -> End {
        let mut news = Instant::now();
        loop {
            let ended = self.qemu.try_wait().ok().flatten();
            let text = fs::read(self.directory.join("report")).unwrap_or_default();
            while let Some(length) = text[self.read..].iter().position(|&byte| byte == b'\n') {
                let line = &text[self.read..self.read + length];
                self.read += length + 1;
                news = Instant::now();
                match serde_json::from_slice(line) {
                    Ok(Line::Over(why)) => return End::Over(why),
                    Ok(line) => each(line),
                    Err(_) => eprintln!("not understood: {}", String::from_utf8_lossy(line)),
                }
            }
            if let Some(status) = ended {
                return End::Lost(self.why(status));
            }
            if Instant::now() > until {
                return End::Lost("the time was over".into());
            }
            if news.elapsed() > SILENCE {
                return End::Lost(format!("nothing was heard for {} s", SILENCE.as_secs()));
            }
            thread::sleep(LOOK);
        }
    }

    pub fn keep(mut self, kept: &Path) -> Try {
        let ask = |command, arguments: &Value| {
            let monitor = UnixStream::connect(self.directory.join("qmp"));
            let answer = monitor.and_then(|monitor| qmp(&monitor, command, arguments));
            answer.map_err(|error| format!("monitor: {command}: {error}"))
        };
        ask("migrate", &json!({"uri": format!("file:{}", state_of(kept).display())}))?;
        let begun = Instant::now();
        loop {
            let state = ask("query-migrate", &json!({}))?;
            match state["return"]["status"].as_str() {
                Some("completed") => break,
                Some("failed" | "cancelled") => {
                    return Err(format!("the outer VM's state: {state}"));
                }
                Some(_) | None if begun.elapsed() > SILENCE => return Err("no state".into()),
                Some(_) | None => thread::sleep(LOOK),
            }
        }
        ask("quit", &json!({}))?;
        run::wait(&mut self.qemu, SILENCE).map(drop).ok_or_else(|| "QEMU did not end".into())
    }

    fn why(&self, status: ExitStatus) -> String {
        if status.success() {
            return "the outer VM was reset".into(); // with -no-reboot that is QEMU's end
        }
        let said = fs::read_to_string(self.directory.join("qemu.err")).unwrap_or_default();
        let last = said.lines().last().unwrap_or_default();
        format!("QEMU ended with {}: {last}", run::code(status))
    }
}

impl Drop for Outer {
    fn drop(&mut self) {
        let _gone = self.qemu.kill();
        let _reaped = self.qemu.wait();
    }
}

#[derive(Clone, Debug)]
pub enum From {
    /// Power-on; changes of the disk are discarded.
    Power,
    /// Power-on with this disk, which is kept.
    PowerKept(PathBuf),
    /// The stored state of the VM that has this disk.
    Kept(PathBuf),
}

fn state_of(kept: &Path) -> PathBuf {
    kept.with_extension("state")
}

/// Packs the second disk: a tar archive of constant size, because a stored VM expects that size.
fn pack(payload: &Path, script: &Path, files: &[&Path]) -> Try {
    let mut command = Command::new("tar");
    command.arg("--mode=755").arg("-cf").arg(payload);
    for file in std::iter::once(&script).chain(files) {
        let (Some(parent), Some(name)) = (file.parent(), file.file_name()) else {
            return Err(format!("{}: no file", file.display()));
        };
        command.arg("-C").arg(parent).arg(name);
    }
    let packed = command.status().map_err(|error| format!("tar: {error}"))?;
    let sized = File::options().write(true).open(payload).and_then(|file| file.set_len(PAYLOAD));
    sized.map_err(|error| format!("{}: {error}", payload.display()))?;
    if packed.success() { Ok(()) } else { Err("tar failed".into()) }
}

/// Returns QEMU's command line. A stored state can only be restored with the same command line.
pub fn command_line(spec: &Spec) -> String {
    format!("{:?} [] {PAYLOAD}", qemu(spec))
}

/// Returns the unpacked QEMU with its own libraries, which are newer than those of most machines.
fn qemu(spec: &Spec) -> Command {
    let tree = |path: &str| spec.emulator.join(path);
    let mut command = Command::new("setpriv"); // it ends with us, however we end
    // Nested page tables fail with five levels.
    let (accelerator, processor) = match spec.kvm {
        false => ("tcg,thread=multi,tb-size=1024", "max,la57=off"),
        true => ("kvm", "host"),
    };
    let clock = (!spec.kvm).then_some(&spec.clock);
    let outer = |name: &str| spec.outer.join(name).display().to_string();
    let words = "root=/dev/vda rw console=ttyS0 net.ifnames=0 mitigations=off nowatchdog \
        clocksource=tsc tsc=reliable panic=1 quiet";
    command
        .env("QEMU_MODULE_DIR", tree("usr/lib/x86_64-linux-gnu/qemu"))
        .args(["--pdeathsig", "KILL"])
        .arg(tree("usr/lib64/ld-linux-x86-64.so.2"))
        .arg("--library-path")
        .arg(tree("usr/lib/x86_64-linux-gnu"))
        .args(clock.iter().flat_map(|clock| [OsStr::new("--preload"), clock.as_os_str()]))
        .arg(tree("usr/bin/qemu-system-x86_64"))
        .arg("-L")
        .arg(tree("usr/share/qemu"))
        .arg("-L")
        .arg(tree("usr/share/seabios"))
        .args("-name outer -machine q35 -display none -no-reboot -nodefaults".split(' '))
        .args(["-accel", accelerator, "-cpu", processor])
        .args(["-smp", "2", "-m", &MEMORY.to_string()])
        .args(["-kernel", &outer("vmlinuz"), "-initrd", &outer("initrd"), "-append", words])
        .args(["-device", "virtio-net-pci,netdev=net,romfile=", "-device", "virtio-rng-pci"]);
    command
}

// A stored state of an outer VM with a running server, which saves a minute or more in emulation.

/// A stored state is invalid once this file changes.
const SOURCE: &str = include_str!("setup.rs");

/// Limit for the first boot, which took five minutes on a busy machine.
const FIRST_BOOT: Duration = Duration::from_secs(1800);

/// Returns where an outer VM starts, and creates the stored state if there is none.
pub fn begin(options: &Options, work: &Path) -> Try<From> {
    let spec = &options.spec;
    if spec.kvm {
        return Ok(From::Power); // it boots in seconds
    }
    let mut hash = DefaultHasher::new();
    (SOURCE, command_line(spec)).hash(&mut hash);
    let kept = spec.outer.join(format!("warm-{:016x}.qcow2", hash.finish()));
    let done = kept.with_extension("done");
    if !done.exists() {
        forget(&spec.outer);
        make(options, work, &kept)?;
        fs::write(&done, "").map_err(|error| format!("{}: {error}", done.display()))?;
    }
    Ok(From::Kept(kept))
}

fn forget(directory: &Path) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("warm-")) {
            let _gone = fs::remove_file(path);
        }
    }
}

fn make(options: &Options, work: &Path, kept: &PathBuf) -> Try {
    let spec = &options.spec;
    println!("a first boot, until the server is up; it is kept for the next runs");
    let mut create = Command::new("qemu-img");
    create.args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b"]);
    let created = create.arg(spec.outer.join("disk.raw")).arg(kept).status();
    if !created.is_ok_and(|status| status.success()) {
        return Err("qemu-img failed".into());
    }
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let (server, slow) = (options.server.name(), options.slow);
    let start = format!("#!/bin/sh\n./mote-servers check {server} mote {slow}\n");
    let mut outer = Outer::start(spec, work, &start, &[&this], &From::PowerKept(kept.clone()))?;
    let end = outer.hear(options.until.min(Instant::now() + FIRST_BOOT), |line| {
        if let Line::Step(text, at) = line {
            println!("  {at:6.1} s  {text}");
        }
    });
    match end {
        End::Over(why) if why.is_empty() => outer.keep(kept),
        End::Over(why) | End::Lost(why) => Err(format!("the first boot: {why}")),
    }
}
