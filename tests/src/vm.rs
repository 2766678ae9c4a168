//! A VM in QEMU, software emulation unless `MOTE_ACCEL` says otherwise, with a real vsock by way of vhost-device-vsock, its status port on a ring buffer or a
//! socket, and its config share.

mod hot;
mod machine;
pub mod run;

pub use machine::{PC, has_smbios, is_pc, lets_go, little_memory, tells_off};

use std::cell::Cell;
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::guest::Guest;
use crate::proc::ticks;
use crate::{Process, tool, wait};

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "two switches that have nothing in common")]
pub struct Spec {
    pub port: &'static str,
    /// Whether the port is a socket (the CONNECT dialect) rather than a ring buffer.
    pub socket: bool,
    /// Size of the status port's ring, bytes: 16, or 16384 under Incus from 7.0.1 on (P§2.1).
    pub ring: u32,
    /// Whether it has a vsock.
    pub vsock: bool,
    /// What of it is not there when it boots: [`Vm::plug_late`] brings it.
    pub late: Vec<Late>,
    /// How the config share comes in.
    pub share: Share,
    /// Further virtiofs shares that are there from the start, with their tags.
    pub shares: Vec<(&'static str, PathBuf)>,
    /// The address of a NIC that is connected to nothing.
    pub nic: Option<&'static str>,
    /// Words for the kernel's command line (see image/init).
    pub words: String,
    /// Memory, MiB.
    pub memory: u32,
    /// Where kernel and initrd are.
    pub image: PathBuf,
    /// Further arguments for QEMU.
    pub extra: Vec<String>,
}

/// What may be plugged in later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// The virtio-serial device with the status port.
    Port,
    Vsock,
    Disk,
}

/// How the config share comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// A disk labelled `incus-agent`.
    Iso,
    /// virtiofs, tag `config`.
    Virtiofs,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            port: "com.canonical.lxd",
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

#[derive(Debug)]
pub struct Vm {
    qemu: Process,
    helpers: Vec<Process>,
    directory: PathBuf,
    shell: Option<UnixStream>,
    late: Vec<(Late, Vec<String>)>,
    /// How many devices have been plugged in.
    plugged: Cell<usize>,
}

/// vhost-device-vsock's socket in a test's directory.
pub fn vsock(directory: &Path) -> PathBuf {
    directory.join("vs")
}

pub fn qmp(directory: &Path) -> PathBuf {
    directory.join("qmp")
}

/// The status port, if it is a socket.
pub fn serial(directory: &Path) -> PathBuf {
    directory.join("serial")
}

impl Vm {
    /// Boots it; does not wait for anything inside.
    pub fn boot(directory: &Path, spec: &Spec, share: &Path) -> Self {
        let mut helpers = vec![start_vsock(directory)];
        let config = config_share(directory, spec, share, &mut helpers);
        let devices = devices(directory, spec, &mut helpers);
        let path = |name: &str| directory.join(name).display().to_string();
        let console = format!("file,id=console,path={}", path("console"));
        let status = if spec.socket {
            format!("socket,id=qemu_serial-chardev,path={},server=on,wait=off", path("serial"))
        } else {
            format!("ringbuf,id=qemu_serial-chardev,size={}", spec.ring)
        };
        let (now, late) = backed(spec);
        let memory = spec.memory;
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
            .args(config)
            .args(now.iter().flat_map(|device| ["-device", device]))
            .args(devices)
            .args(&spec.extra)
            .args(["-chardev", &format!("socket,id=hot,path={},server=on,wait=off", path("hot"))])
            .args(["-mon", "chardev=hot,mode=control"])
            .arg("-kernel")
            .arg(spec.image.join("vmlinuz"))
            .arg("-initrd")
            .arg(spec.image.join("initrd"))
            // On a busy machine the emulated timer may be late, which the kernel takes for broken.
            .args([
                "-append",
                &format!(
                    "console=ttyS0 quiet panic=-1 no_timer_check{} {}",
                    machine::words(),
                    spec.words
                ),
            ]);
        let log = File::create(directory.join("qemu.log")).expect("a log");
        let qemu = Process::start(command.stdin(Stdio::null()).stderr(log));
        // Connected before the guest says anything: QEMU keeps nothing for a late listener.
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

    /// Its shell, once it is there. There is one.
    pub fn guest(&mut self) -> Guest {
        Guest::new(self.shell.take().expect("the one shell"), Duration::from_secs(90))
    }

    /// The same of one that was switched on from a [`Vm::save`]d state.
    pub fn guest_again(&mut self) -> Guest {
        Guest::again(self.shell.take().expect("the one shell"))
    }

    /// Plugs in a share while it runs.
    pub fn plug(&mut self, tag: &str, source: &Path) {
        let socket = start_virtiofs(&self.directory, tag, source, &mut self.helpers);
        let path = socket.display();
        self.order(&[
            format!(
                "{{\"execute\":\"chardev-add\",\"arguments\":{{\"id\":\"{tag}\",\"backend\":{{\"type\":\
                 \"socket\",\"data\":{{\"server\":false,\"addr\":{{\"type\":\"unix\",\"data\":\
                 {{\"path\":\"{path}\"}}}}}}}}}}}}"
            ),
            device_add(&machine::plugged(
                &format!("vhost-user-fs-pci,chardev={tag},tag={tag},id=dev-{tag}"),
                self.slot(),
            )),
        ]);
    }

    /// What it printed on its console, the agent's log among it.
    pub fn console(&self) -> String {
        let bytes = std::fs::read(self.directory.join("console")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Time that its QEMU has had on the CPU.
    pub fn busy(&self) -> Duration {
        Duration::from_millis(10 * ticks(self.qemu.0.id()))
    }

    pub fn cut(&mut self) {
        self.qemu.kill();
    }

    /// The same, and ends what is around it, for another one in the same directory.
    pub fn end(&mut self) {
        self.cut();
        self.helpers.clear();
    }

    pub fn has_ended(&mut self) -> bool {
        !matches!(self.qemu.0.try_wait(), Ok(None))
    }

    /// Waits for QEMU's end after a power-off of the guest.
    pub fn ended(&mut self, limit: Duration) {
        wait("power-off", limit, || self.qemu.0.try_wait().ok().flatten());
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- console\n{}--- end of console", self.console());
            let log = std::fs::read_to_string(self.directory.join("qemu.log"));
            eprintln!("--- qemu\n{}", log.unwrap_or_default());
        }
    }
}

fn start_vsock(directory: &Path) -> Process {
    let program = tool("MOTE_VSOCK", "target/vhost-device-vsock");
    let vhost = directory.join("vhost");
    // Of one before it.
    for old in [&vhost, &vsock(directory)] {
        let _none = std::fs::remove_file(old);
    }
    let config =
        format!("guest-cid=3,uds-path={},socket={}", vsock(directory).display(), vhost.display());
    let log = File::create(directory.join("vhost.log")).expect("a log");
    let process = Process::start(
        Command::new(program).args(["--vm", &config]).stdin(Stdio::null()).stderr(log),
    );
    wait("vhost-device-vsock", Duration::from_secs(10), || vhost.exists().then_some(()));
    process
}

/// QEMU's arguments for the share; starts what they need.
fn config_share(
    directory: &Path,
    spec: &Spec,
    share: &Path,
    helpers: &mut Vec<Process>,
) -> Vec<String> {
    match spec.share {
        Share::Iso => {
            let iso = directory.join("config.iso");
            let made = Command::new("genisoimage")
                // Without what a daemon is just writing beside a file whose name it will take.
                .args(["-quiet", "-R", "-J", "-V", "incus-agent", "-m", "*.new", "-o"])
                .arg(&iso)
                .arg(share)
                .status()
                .expect("genisoimage");
            assert!(made.success(), "genisoimage failed");
            let drive = format!("file={},if=none,id=config,format=raw,readonly=on", iso.display());
            ["-drive", &drive].map(String::from).into()
        }
        Share::Virtiofs => {
            let socket = start_virtiofs(directory, "config", share, helpers);
            let chardev = format!("socket,id=fs,path={}", socket.display());
            let device = "vhost-user-fs-pci,chardev=fs,tag=config";
            ["-chardev", &chardev, "-device", device].map(String::from).into()
        }
    }
}

/// The devices whose other ends are there from the start: those that are too, and those that come later.
fn backed(spec: &Spec) -> (Vec<String>, Vec<(Late, Vec<String>)>) {
    let mut ports = vec![
        "virtio-serial-pci,id=serial".to_owned(),
        format!(
            "virtserialport,chardev=qemu_serial-chardev,name={},id=qemu_serial,bus=serial.0",
            spec.port
        ),
    ];
    if spec.port != "org.linuxcontainers.lxd" {
        // The dummy that current servers keep (P§2.1).
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

/// QEMU's order for a device, from what `-device` takes.
fn device_add(device: &str) -> String {
    let (driver, properties) = device.split_once(',').expect("a device has properties");
    let properties: Vec<_> = properties
        .split(',')
        .map(|property| {
            let (name, value) = property.split_once('=').expect("a name and a value");
            format!("\"{name}\":\"{value}\"")
        })
        .collect();
    format!(
        "{{\"execute\":\"device_add\",\"arguments\":{{\"driver\":\"{driver}\",{}}}}}",
        properties.join(",")
    )
}

/// QEMU's arguments for further shares and a NIC.
fn devices(directory: &Path, spec: &Spec, helpers: &mut Vec<Process>) -> Vec<String> {
    let mut args = Vec::new();
    for (tag, source) in &spec.shares {
        let socket = start_virtiofs(directory, tag, source, helpers);
        let chardev = format!("socket,id={tag},path={}", socket.display());
        let device = format!("vhost-user-fs-pci,chardev={tag},tag={tag}");
        args.extend(["-chardev", &chardev, "-device", &device].map(String::from));
    }
    if let Some(address) = spec.nic {
        let device = format!("virtio-net-pci,netdev=nic,mac={address},romfile=");
        args.extend(["-netdev", "hubport,id=nic,hubid=0", "-device", &device].map(String::from));
    }
    args
}

/// Starts a daemon for a share; gives its socket.
fn start_virtiofs(
    directory: &Path,
    tag: &str,
    source: &Path,
    helpers: &mut Vec<Process>,
) -> PathBuf {
    let socket = directory.join(format!("fs-{tag}"));
    let log = File::create(directory.join(format!("fs-{tag}.log"))).expect("a log");
    let daemon = tool("MOTE_VIRTIOFSD", "/usr/lib/qemu/virtiofsd");
    helpers.push(Process::start(
        Command::new(daemon)
            .arg(format!("--socket-path={}", socket.display()))
            .args(["-o", &format!("source={}", source.display()), "-o", "sandbox=chroot"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log),
    ));
    wait("virtiofsd", Duration::from_secs(10), || socket.exists().then_some(()));
    socket
}
