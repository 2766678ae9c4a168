//! Brings hot-plugged CPUs, memory, disk space and NICs online. Workers grow disks and name NICs,
//! because file systems and the share may hang.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use mote_core::hostapi::policy::{Capability, Part};
use mote_core::hotplug::nics::Plugged;
use mote_core::hotplug::{is_made_up, is_of_disk};
use smol::future::{FutureExt, yield_now};

use crate::agent::Agent;
use crate::built;
use crate::runtime::{Async, NEVER, Signal, log, now, sleep};
use crate::sys::sandbox;
use crate::system::uevent;
use crate::workers::run::run as run_worker;

mod resources;

/// Delay after the start, because work that the host waits for comes first.
const STARTED: Duration = Duration::from_millis(500);
/// Number of events that are handled before other tasks run.
const BURST: usize = 32;
/// Pause after a disk's event: the host may enlarge it twice, or a program may use the space.
const MOMENT: Duration = Duration::from_millis(200);
/// Time limit for growing disks: a frozen file system does not grow until it is thawed.
const LONGEST: Duration = Duration::from_hours(24);
/// Time limit for naming NICs.
const NAMED: Duration = Duration::from_secs(30);

/// Handles device events forever. Returns only in the sandbox or if the kernel reports no events.
pub(crate) async fn run(agent: Rc<Agent>) {
    if sandbox::is_entered() {
        return;
    }
    let root = agent.options.root.as_path();
    let uses = |part: Part| agent.policy.get().uses(part);
    // Listens before the scan below, so that no device is missed.
    let socket = match uevent::listen().and_then(Async::new_nonblocking) {
        Ok(socket) => socket,
        Err(error) => return log::debug(format_args!("no device events: {error}")),
    };
    sleep(STARTED).await;
    let mut online = resources::at_start(root, &uses);
    let disks = Rc::new(Signal::default());
    agent.spawn(grow_disks(agent.clone(), disks.clone()));
    let nics = Rc::new(Nics::default());
    if built::FIRST_BOOT {
        agent.spawn(name_nics(agent.clone(), nics.clone()));
    }
    loop {
        for _ in 0..BURST {
            let mut buffer = [0; uevent::EVENT];
            let event = socket.try_read(|socket| uevent::next(socket, &mut buffer));
            match event {
                Ok(event) if is_made_up(event) => {}
                Ok(event) if is_of_disk(event) => disks.raise(),
                Ok(event) => {
                    online.see(root, event, &uses);
                    nics.see(event);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if online.end(root, &uses) {
                        disks.raise();
                    }
                    break;
                }
                Err(_) => online.is_lost = true,
            }
        }
        online.log();
        yield_now().await;
        if socket.readable().await.is_err() {
            return;
        }
    }
}

/// Grows partitions and file systems immediately and each time `changed` is raised, if the guest's
/// policy allows it. Does nothing in an initramfs, which has mounted nothing yet.
async fn grow_disks(agent: Rc<Agent>, changed: Rc<Signal>) {
    let mut seen = NEVER;
    loop {
        if agent.policy.get().uses(Part::Disks)
            && !agent.options.is_early()
            && let Err(error) = run_worker(&agent, &["grow-worker"], &[], 0, LONGEST).await
        {
            log::debug(format_args!("cannot grow disks: {error}"));
        }
        changed.after(seen).await;
        sleep(MOMENT).await;
        seen = changed.seen();
    }
}

#[derive(Default)]
struct Nics {
    plugged: RefCell<Plugged>,
    changed: Signal,
}

impl Nics {
    fn see(&self, event: &[u8]) {
        if self.plugged.borrow_mut().see(event, now()).is_some() {
            self.changed.raise();
        }
    }
}

/// Names new NICs, one worker after another. Incus writes no file for a hot-plugged NIC, so the
/// agent requests the devices when Incus reports one.
async fn name_nics(agent: Rc<Agent>, nics: Rc<Nics>) {
    // Includes events from before this task ran.
    let mut seen = [NEVER; 2];
    loop {
        let [plugged, reported] = seen;
        nics.changed.after(plugged).or(agent.nic_added.after(reported)).await;
        seen = [nics.changed.seen(), agent.nic_added.seen()];
        // In an initramfs, leave the names to the real root.
        if !agent.policy.allows(Capability::Network) || agent.options.is_early() {
            continue;
        }
        let first = nics.plugged.borrow().announced_after_event(now());
        let Some(first) = first.map(|first| first.to_string()) else { continue };
        // Incus reports a NIC before its driver has found it, so the index is known only now.
        let devices =
            if agent.nic_added.seen() == NEVER { Vec::new() } else { agent.devices().await };
        let mut words = Vec::new();
        let options = &agent.options;
        for (option, directory) in
            [("--config-dir", &options.config_dir), ("-s", &options.secrets_dir)]
        {
            if let Some(directory) = directory.as_ref().and_then(|directory| directory.to_str()) {
                words.extend([option, directory]);
            }
        }
        words.extend(["nics", &first]);
        if let Err(error) = run_worker(&agent, &words, &devices, 0, NAMED).await {
            log::debug(format_args!("cannot rename new NICs: {error}"));
        }
    }
}
