//! Process 1 of a one-file VM (docs/how-to/one-file-vm.md). The agent is its child, which it can
//! restart; the end of process 1 would be a kernel panic, so nothing here may panic. It has one
//! thread, which waits in poll(2).

mod mounts;
mod service;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use mote_core::hostapi::exec::power::Power;
use mote_core::init::button;
use mote_core::init::plan::{self, Plan};
use mote_core::init::shutdown::{Act, Goal, Shutdown};
use mote_core::netlink::Change;
use mote_core::time::Uptime;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, wait};
use rustix::system::{RebootCommand, reboot, sethostname};

use crate::init::service::{Role, Service, use_console};
use crate::options::Options;
use crate::print;
use crate::runtime::{LOOK_INTERVAL, log, now, read_bounded, read_if_there, read_text, text_of};
use crate::sys::{self, file};
use crate::system::devices::entries;
use crate::system::netlink::Netlink;
use crate::system::power::is_mote;
use crate::system::{modules, uevent};

pub(crate) const HELP: &str = "
As process 1 (/init of an initramfs, or 'mote-agent init') it mounts file systems, loads drivers,
starts the agent and the programs of mote.run= (kernel command line) and /etc/mote-init, and
powers off.
  poweroff, halt   tell process 1 to power off; also as the program's name (argv[0])
  reboot           tell process 1 to reboot
";

const ROOT: &str = "/";
/// Maximum size of `/etc/mote-init` and of the kernel command line, in bytes.
const MAX_ETC_FILE: u64 = 64 * 1024;
/// ACPI's power button, and the input device files.
const MODULES: [&str; 2] = ["button", "evdev"];
/// Index of the loopback device, which the kernel creates first.
const LOOPBACK: u32 = 1;
/// Time limit for syncing and unmounting, because a file system without its server never finishes.
const UNMOUNT: Duration = Duration::from_secs(20);

/// Signals and their meaning. The kernel sends SIGINT for ctrl-alt-del, busybox SIGUSR1 and SIGUSR2
/// for `halt` and `poweroff`, container managers SIGPWR.
const SIGNALS: [(Signal, Option<Goal>); 7] = [
    (Signal::TERM, Some(Goal::Off)),
    (Signal::INT, Some(Goal::Reboot)),
    (Signal::USR1, Some(Goal::Off)),
    (Signal::USR2, Some(Goal::Off)),
    (Signal::POWER, Some(Goal::Off)),
    (Signal::HUP, None),
    (Signal::CHILD, None),
];

/// Returns whether this is process 1 and not a command that runs in any process. Ignores unknown
/// arguments: the kernel passes unknown words of its command line.
pub(crate) fn is_wanted(parsed: &Result<Options, String>) -> bool {
    std::process::id() == 1 && parsed.as_ref().map_or(true, Options::is_agent)
}

/// Runs as process 1 and ends with reboot(2). Returns only in another process.
pub(crate) fn run() -> u8 {
    if std::process::id() != 1 {
        print::complain(format_args!("init runs only as process 1"));
        return 2;
    }
    let troubles = mounts::mount(Path::new(ROOT));
    use_console();
    troubles.iter().for_each(|trouble| log::warn(format_args!("{trouble}")));
    match Init::begin() {
        Ok(mut init) => init.serve(),
        Err(error) => log::error(format_args!("signals: {error}")),
    }
    stay()
}

/// Signals process 1 to power off or reboot, if it is this program.
pub(crate) fn tell(power: &Power) -> u8 {
    if !is_mote() {
        print::complain(format_args!("process 1 is not mote-agent, or you are not root"));
        return 1;
    }
    sys::kill(Pid::INIT, power.mote.into());
    0
}

/// Sleeps forever, because the end of process 1 is a kernel panic.
fn stay() -> ! {
    loop {
        std::thread::sleep(UNMOUNT);
    }
}

struct Init {
    signals: OwnedFd,
    devices: Option<OwnedFd>,
    buttons: Buttons,
    services: Vec<Service>,
    shutdown: Option<Shutdown>,
}

impl Init {
    fn begin() -> io::Result<Self> {
        let signals = sys::signals_of(&SIGNALS.map(|(signal, _)| signal.as_raw()))?;
        let root = Path::new(ROOT);
        // Read bytes, because one invalid byte would make text of the whole line unreadable.
        let line = read_bounded(&root.join("proc/cmdline"), MAX_ETC_FILE).unwrap_or_default();
        let file = read_if_there(&root.join(plan::FILE), MAX_ETC_FILE).unwrap_or_else(|error| {
            log::warn(format_args!("cannot read /{}: {error}", plan::FILE));
            None
        });
        let texts = [line, file.unwrap_or_default()];
        let [line, file] = texts.each_ref().map(|text| String::from_utf8_lossy(text));
        let plan = Plan::read(&line, &file);
        // Listens before the scan below, so that no device is missed.
        let devices = uevent::listen().ok();
        let mut agent = Service::agent(plan.agent);
        // Start the agent first, because the host waits for it.
        agent.start(now());
        plan.troubles.iter().for_each(|trouble| log::warn(format_args!("{trouble}")));
        if let Err(error) = reboot(RebootCommand::CadOff) {
            log::warn(format_args!("ctrl-alt-del reboots immediately: {error}"));
        }
        name_host(root, plan.hostname);
        let up = Netlink::open().and_then(|mut netlink| netlink.change(LOOPBACK, &Change::Up));
        if let Err(error) = up {
            log::warn(format_args!("cannot bring up lo: {error}"));
        }
        let wanted = MODULES.into_iter().chain(plan.modules.iter().map(String::as_str));
        for why in wanted.filter_map(|name| modules::load(root, name).err()) {
            log::warn(format_args!("{why}"));
        }
        let mut services = vec![agent];
        services.extend(plan.programs.into_iter().map(Service::program));
        if let Some(first) = services.get_mut(1) {
            first.role = Role::Foreground;
        }
        let buttons = Buttons::default();
        let mut init = Self { signals, devices, buttons, services, shutdown: None };
        init.buttons.look(root);
        if init.buttons.is_empty() {
            log::warn(format_args!("no power button: the host's stop request has no effect"));
        }
        Ok(init)
    }

    fn serve(&mut self) -> ! {
        loop {
            let is_alone = self.reap();
            let due = match self.shutdown {
                Some(shutdown) => self.go_down(shutdown, is_alone),
                None => self.start_due(),
            };
            self.wait(due);
        }
    }

    /// Reaps all ended processes, including orphans. Returns true if no process is left.
    fn reap(&mut self) -> bool {
        loop {
            let (pid, status) = match wait(WaitOptions::NOHANG) {
                Ok(Some(ended)) => ended,
                Ok(None) => return false,
                Err(error) => return error == Errno::CHILD,
            };
            let is_up = self.shutdown.is_none();
            let Some(service) = self.services.iter_mut().find(|service| service.is(pid)) else {
                continue;
            };
            service.ended(now(), status, is_up);
            if service.role == Role::Agent
                && let Some(shutdown) = &mut self.shutdown
            {
                shutdown.agent_ended(now());
            }
        }
    }

    /// Starts the services that are due; returns when the next one is.
    fn start_due(&mut self) -> Option<Uptime> {
        for service in &mut self.services {
            if service.due().is_some_and(|due| due <= now()) {
                service.start(now());
            }
        }
        self.services.iter().filter_map(Service::due).min()
    }

    /// Performs the shutdown steps that are due; returns when the next one is. The last step does
    /// not return.
    fn go_down(&mut self, mut shutdown: Shutdown, is_alone: bool) -> Option<Uptime> {
        let until = loop {
            match shutdown.next(now(), is_alone) {
                Act::Ask => {
                    sys::kill_all(Signal::TERM.as_raw());
                    // A stopped process must continue before it can handle the signal.
                    sys::kill_all(Signal::CONT.as_raw());
                }
                Act::Kill => {
                    log::warn(format_args!("killing processes that did not exit"));
                    sys::kill_all(Signal::KILL.as_raw());
                }
                Act::Unmount => {
                    let done = sys::run_in_fork(UNMOUNT, &|| {
                        rustix::fs::sync();
                        mounts::unmount(Path::new(ROOT))
                    });
                    if !done {
                        log::warn(format_args!("some file systems stay mounted"));
                    }
                }
                Act::Leave(goal) => leave(goal),
                Act::Wait(until) => break until,
            }
        };
        self.shutdown = Some(shutdown);
        Some(until)
    }

    fn wait(&mut self, due: Option<Uptime>) {
        let limit = due.and_then(|due| Timespec::try_from(due - now()).ok());
        let signals = self.signals.as_fd();
        let devices = self.devices.as_ref().map_or(signals, AsFd::as_fd);
        let mut ready: Vec<_> = [signals, devices]
            .into_iter()
            .chain(self.buttons.files())
            .map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN))
            .collect();
        if poll(&mut ready, limit.as_ref()).is_err() {
            return;
        }
        let mut is_ready = ready.iter().map(|one| !one.revents().is_empty());
        let (signal, device) = (is_ready.next() == Some(true), is_ready.next() == Some(true));
        let any_button = is_ready.any(|ready| ready);
        drop(ready);
        if any_button && self.buttons.is_pressed() {
            self.end("the power button", Goal::Off);
        }
        if signal {
            self.signal();
        } else if device && let Some(devices) = &self.devices {
            // Events come in bursts, so one scan handles all of them.
            std::thread::sleep(LOOK_INTERVAL);
            uevent::drain(devices);
            self.buttons.look(Path::new(ROOT));
        }
    }

    fn signal(&mut self) {
        let Ok(number) = sys::next_number(&self.signals) else { return };
        let found = SIGNALS.into_iter().find(|(signal, _)| signal.as_raw() == number);
        if let Some((signal, Some(goal))) = found {
            let who = if signal == Signal::INT { "ctrl-alt-del" } else { "a signal" };
            self.end(who, goal);
        }
    }

    fn end(&mut self, who: &str, goal: Goal) {
        if self.shutdown.is_none() {
            let what = if goal == Goal::Off { "switching off" } else { "rebooting" };
            log::info(format_args!("{who}: {what}"));
            self.shutdown = Some(Shutdown::new(goal));
        }
    }
}

fn leave(goal: Goal) -> ! {
    let command = if goal == Goal::Off { RebootCommand::PowerOff } else { RebootCommand::Restart };
    if let Err(error) = reboot(command) {
        log::error(format_args!("cannot power off or reboot: {error}"));
    }
    stay()
}

/// Sets the host name to `name`, or as in `/etc/hostname`, which may have comments (hostname(5)).
fn name_host(root: &Path, name: Option<String>) {
    let text = name.unwrap_or_else(|| text_of(root, "etc/hostname"));
    let mut lines = text.lines().map(str::trim);
    let Some(name) = lines.find(|line| !line.is_empty() && !line.starts_with('#')) else { return };
    if let Err(error) = sethostname(name.as_bytes()) {
        log::warn(format_args!("cannot set the hostname: {error}"));
    }
}

/// Number of an input device's events that are read at a time.
const EVENTS: usize = 16;

/// Power buttons: input devices with a power key, including hot-plugged ones.
#[derive(Default)]
struct Buttons(Vec<(PathBuf, OwnedFd)>);

impl Buttons {
    fn look(&mut self, root: &Path) {
        for path in entries(&root.join("dev/input")) {
            let Some(name) = path.file_name() else { continue };
            let about = root.join("sys/class/input").join(name).join("device/capabilities/key");
            let has_key = read_text(&about).is_ok_and(|keys| button::has_it(&keys));
            if !has_key || self.0.iter().any(|(known, _)| *known == path) {
                continue;
            }
            if let Ok(file) = file::open(&path, OFlags::NONBLOCK) {
                self.0.push((path, file.into()));
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(|(_, file)| file.as_fd())
    }

    fn is_pressed(&mut self) -> bool {
        let mut pressed = false;
        self.0.retain(|(_, file)| {
            let mut events = [0; EVENTS * button::EVENT];
            loop {
                match rustix::io::read(file, &mut events) {
                    Ok(0) => return false,
                    Ok(count) => {
                        pressed |= button::is_pressed(events.get(..count).unwrap_or_default())
                    }
                    Err(error) => return error == Errno::AGAIN,
                }
            }
        });
        pressed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::scratch;
    use mote_core::init::button::EVENT;

    #[test]
    fn finds_a_button_once_and_drops_it_when_removed() {
        let root = scratch("buttons");
        let put = |path: &str, bytes: &[u8]| crate::runtime::put(&root, path, bytes);
        let mut buttons = Buttons::default();
        buttons.look(&root);
        assert!(buttons.is_empty());
        let mut press = [0; EVENT];
        press[16..24].copy_from_slice(&[1, 0, 116, 0, 1, 0, 0, 0]);
        for (name, keys) in [("event0", "10000000000000 0\n"), ("event1", "70000 0 0 0 0\n")] {
            put(&format!("dev/input/{name}"), &press);
            put(&format!("sys/class/input/{name}/device/capabilities/key"), keys.as_bytes());
        }
        for _ in 0..2 {
            buttons.look(&root);
            assert_eq!(buttons.files().count(), 1);
        }
        // End of file means that the device was removed.
        assert!(buttons.is_pressed() && buttons.is_empty());
    }
}
