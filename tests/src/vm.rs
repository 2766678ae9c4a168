//! A VM in QEMU, in software emulation unless `MOTE_ACCEL` is set, with a real vsock by
//! vhost-device-vsock, its status port on a ring buffer or a socket, and its config share.

pub use machine::{PC, is_pc, machine};

use crate::prelude::*;

mod machine;

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct Spec {
    /// Whether the status port is a socket (the CONNECT dialect) instead of a ring buffer.
    pub socket: bool,
    /// Size of the status port's ring, in bytes: 16, or 16384 with Incus from 7.0.1 on (P§2.1).
    pub ring: u32,
    pub vsock: bool,
    /// Devices that are missing at boot; [`Vm::plug_late`] adds them.
    pub late: Vec<Late>,
    pub share: Share,
    /// Further virtiofs shares with their tags.
    pub shares: Vec<(&'static str, PathBuf)>,
    pub nic: Option<&'static str>,
    pub words: String,
    pub memory: u32,
    pub image: PathBuf,
    pub extra: Vec<String>,
}

/// Devices that can be plugged in later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// The virtio-serial device with the status port.
    Port,
    Vsock,
    Disk,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// A disk with the label `incus-agent`.
    Iso,
    Virtiofs,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            socket: false,
            ring: 16,
            vsock: true,
            late: Vec::new(),
            share: Share::Iso,
            shares: Vec::new(),
            nic: None,
            words: String::new(),
            memory: 128,
            image: tool("MOTE_IMAGE", "target/image"),
            extra: Vec::new(),
        }
    }
}

type Helpers = Vec<Process>;

pub struct Vm {
    qemu: Process,
    helpers: Helpers,
    directory: PathBuf,
    shell: Option<UnixStream>,
    late: Vec<(Late, Vec<String>)>,
    plugged: Cell<usize>,
}

impl Vm {
    pub fn boot(directory: &Path, spec: &Spec, share: &Path, port: &str) -> Self {
        let mut helpers = vec![start_vsock(directory)];
        let devices = devices(directory, spec, share, &mut helpers);
        let path = |name: &str| directory.join(name).display().to_string();
        let console = format!("file,id=console,path={}", path("console"));
        let status = if spec.socket {
            format!("socket,id=qemu_serial-chardev,path={},server=on,wait=off", path("serial"))
        } else {
            format!("ringbuf,id=qemu_serial-chardev,size={}", spec.ring)
        };
        let (now, late) = backed(spec, port);
        let memory = spec.memory;
        // no_timer_check: the emulated timer may be late on a busy machine, and the kernel would
        // consider it broken.
        let words = "console=ttyS0 quiet panic=-1 no_timer_check";
        let words = format!("{words}{} {}", machine::words(), spec.words);
        let shell = format!("socket,id=shell,path={},server=on,wait=off", path("shell"));
        let mut command = Command::new(machine::program());
        command
            .args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"])
            .args(machine::arguments(directory, &console, &shell))
            .args(["-m", &format!("{memory}M")])
            .args(["-object", &format!("memory-backend-memfd,id=mem,size={memory}M,share=on")])
            .args(["-qmp", &format!("unix:{},server=on,wait=off", path("qmp"))])
            .args(["-chardev", &status])
            .args(["-chardev", &format!("socket,id=vs,path={}", path("vhost"))])
            .args(now.iter().flat_map(|device| ["-device", device]))
            .args(devices)
            .args(&spec.extra)
            .args(["-chardev", &format!("socket,id=hot,path={},server=on,wait=off", path("hot"))])
            .args(["-mon", "chardev=hot,mode=control"])
            .args(["-append", &words]);
        command.arg("-kernel").arg(spec.image.join("vmlinuz"));
        command.arg("-initrd").arg(spec.image.join("initrd"));
        let log = File::create(directory.join("qemu.log")).expect("a log");
        let qemu = Process::start(command.stdin(Stdio::null()).stderr(log));
        // Connects before the guest writes, because QEMU keeps nothing for a late listener.
        let shell = directory.join("shell");
        let (shell, _) = wait("QEMU", Duration::from_secs(20), || UnixStream::connect(&shell).ok());
        Self {
            qemu,
            helpers,
            directory: directory.into(),
            shell: Some(shell),
            late,
            plugged: Cell::new(0),
        }
    }

    /// Returns the guest's only shell once it is ready.
    pub fn guest(&mut self) -> Guest {
        Guest::new(self.shell.take().expect("the one shell"), Duration::from_secs(90))
    }

    /// Like [`Vm::guest`], for a VM that was restored from a [`Vm::save`]d state.
    pub fn guest_again(&mut self) -> Guest {
        Guest::again(self.shell.take().expect("the one shell"))
    }

    pub fn plug(&mut self, tag: &str, source: &Path) {
        let socket = start_virtiofs(&self.directory, tag, source, &mut self.helpers);
        let address = json!({"type": "unix", "data": {"path": socket}});
        let backend = json!({"type": "socket", "data": {"server": false, "addr": address}});
        self.order("chardev-add", &json!({"id": tag, "backend": backend}));
        self.attach(&format!("vhost-user-fs-pci,chardev={tag},tag={tag},id=dev-{tag}"));
    }

    pub fn console(&self) -> String {
        let bytes = fs::read(self.directory.join("console")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub fn cut(&mut self) {
        self.qemu.kill();
    }

    /// Kills QEMU and its helpers, so that another VM can use the directory.
    pub fn end(&mut self) {
        self.cut();
        self.helpers.clear();
    }

    pub fn has_ended(&mut self) -> bool {
        !matches!(self.qemu.0.try_wait(), Ok(None))
    }

    pub fn ended(&mut self, limit: Duration) {
        wait("power-off", limit, || self.qemu.0.try_wait().ok().flatten());
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- console\n{}--- end of console", self.console());
            let log = fs::read_to_string(self.directory.join("qemu.log"));
            eprintln!("--- qemu\n{}", log.unwrap_or_default());
        }
    }
}

fn serve(socket: &Path, command: &mut Command) -> Process {
    // An earlier VM may have left its socket.
    let _none = fs::remove_file(socket);
    let log = File::create(socket.with_extension("log")).expect("a log");
    let output = log.try_clone().expect("a log");
    let process = Process::start(command.stdin(Stdio::null()).stdout(output).stderr(log));
    until("its socket", Duration::from_secs(10), || socket.exists());
    process
}

fn start_vsock(directory: &Path) -> Process {
    let (vhost, vsock) = (directory.join("vhost"), directory.join("vs"));
    let _none = fs::remove_file(&vsock);
    let config = format!("guest-cid=3,uds-path={},socket={}", vsock.display(), vhost.display());
    let program = tool("MOTE_VSOCK", "target/vhost-device-vsock");
    serve(&vhost, Command::new(program).args(["--vm", &config]))
}

/// Returns the devices whose backends exist from the start: those at boot, and those to add later.
fn backed(spec: &Spec, port: &str) -> (Vec<String>, Vec<(Late, Vec<String>)>) {
    let mut ports = vec![
        "virtio-serial-pci,id=serial".to_owned(),
        format!(
            "virtserialport,chardev=qemu_serial-chardev,name={port},id=qemu_serial,bus=serial.0"
        ),
    ];
    if port != "org.linuxcontainers.lxd" {
        // Add the dummy port that current servers keep (P§2.1).
        ports.push("virtserialport,name=org.linuxcontainers.lxd,id=legacy,bus=serial.0".into());
    }
    let mut all = vec![(Late::Port, ports)];
    if spec.share == Share::Iso {
        all.push((Late::Disk, vec!["virtio-blk-pci,drive=config,id=disk".into()]));
    }
    if spec.vsock || spec.late.contains(&Late::Vsock) {
        all.push((Late::Vsock, vec!["vhost-user-vsock-pci,chardev=vs,id=vsock".into()]));
    }
    let (late, now): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|(what, _)| spec.late.contains(what));
    (now.into_iter().flat_map(|(_, devices)| devices).collect(), late)
}

/// Returns QEMU's arguments for the config share, further shares and a NIC.
fn devices(directory: &Path, spec: &Spec, config: &Path, helpers: &mut Helpers) -> Vec<String> {
    let mut args = Vec::new();
    let mut shares: Vec<_> = spec.shares.iter().map(|(tag, source)| (*tag, &**source)).collect();
    match spec.share {
        Share::Virtiofs => shares.push(("config", config)),
        Share::Iso => {
            let iso = directory.join("config.iso");
            let image = mote_vm::iso::image(config, "incus-agent").expect("the config share");
            fs::write(&iso, image).expect("a disk");
            let drive = format!("file={},if=none,id=config,format=raw,readonly=on", iso.display());
            args.extend(["-drive", &drive].map(String::from));
        }
    }
    let mut add = |words: [&str; 4]| args.extend(words.map(String::from));
    for (tag, source) in shares {
        let socket = start_virtiofs(directory, tag, source, helpers);
        let chardev = format!("socket,id={tag},path={}", socket.display());
        add([
            "-chardev",
            &chardev,
            "-device",
            &format!("vhost-user-fs-pci,chardev={tag},tag={tag}"),
        ]);
    }
    if let Some(address) = spec.nic {
        let device = format!("virtio-net-pci,netdev=nic,mac={address},romfile=");
        add(["-netdev", "hubport,id=nic,hubid=0", "-device", &device]);
    }
    args
}

fn start_virtiofs(directory: &Path, tag: &str, source: &Path, helpers: &mut Helpers) -> PathBuf {
    let socket = directory.join(format!("fs-{tag}"));
    let mut daemon = Command::new(tool("MOTE_VIRTIOFSD", "/usr/lib/qemu/virtiofsd"));
    daemon.arg(format!("--socket-path={}", socket.display()));
    daemon.args(["-o", &format!("source={}", source.display()), "-o", "sandbox=chroot"]);
    helpers.push(serve(&socket, &mut daemon));
    socket
}

/// Returns a `mote-host run` of the test image, whose shell is on the console.
pub fn run(scratch: &Path, options: &[&str], command: &[&str]) -> Command {
    let image = Spec::default().image;
    let mut run = mote_host();
    run.args(["run", "--accel", "tcg", "--append", "mote.shell=console", "--kernel"]);
    run.arg(image.join("vmlinuz")).arg("--initrd").arg(image.join("initrd"));
    run.args(architecture()).args(options).arg("--").args(command);
    run.env("MOTE_HOST_VIRTIOFSD", tool("MOTE_VIRTIOFSD", "/usr/lib/qemu/virtiofsd"));
    run.env("TMPDIR", scratch);
    run
}

/// Returns `mote-host` without input and with its output in pipes.
pub fn mote_host() -> Command {
    let mut command = Command::new(tool("MOTE_HOST", "target/debug/mote-host"));
    command.env("MOTE_VSOCK", tool("MOTE_VSOCK", "target/vhost-device-vsock"));
    command.env(mote_machine::SLOWDOWN, slowdown().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs `mote-host` on the instances in a directory. Returns stdout, stderr and the exit code.
pub fn kept(directory: &Path, args: &[&str]) -> (String, String, Option<i32>) {
    let mut command = mote_host();
    command.arg("--dir").arg(directory).args(args);
    output(command)
}

/// Returns `--arch` if the image is for another architecture.
pub fn architecture() -> Vec<String> {
    std::env::var("MOTE_ARCH").map_or_else(|_| Vec::new(), |arch| vec!["--arch".into(), arch])
}

pub fn output(mut run: Command) -> (String, String, Option<i32>) {
    let output = bounded(&mut run).and_then(Child::wait_with_output).expect("mote-host");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}
