//! Brings hot-plugged CPUs, memory, disk space and NICs online.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use mote_core::hostapi::policy::Part;
use mote_core::hotplug::event::{is_made_up, is_of_disk};
use smol::future::yield_now;

use crate::agent::Agent;
use crate::built;
use crate::runtime::{Async, Signal, log, sleep};
use crate::sys::sandbox;
use crate::system::uevent;

use self::nics::Nics;

mod disks;
mod nics;
mod resources;

/// Delay after the start, because what the host waits for comes first.
const STARTED: Duration = Duration::from_millis(500);
/// Number of events that are handled before other tasks run.
const BURST: usize = 32;

/// Handles device events forever. Returns only in the sandbox or if the kernel reports no events.
pub(crate) async fn run(agent: Rc<Agent>) {
    if sandbox::is_entered() {
        return;
    }
    let root = agent.options.root.as_path();
    let uses = |part: Part| agent.policy.get().uses(part);
    // Listens before the look below, so that no device is missed.
    let socket = match uevent::listen().and_then(Async::new_nonblocking) {
        Ok(socket) => socket,
        Err(error) => return log::debug(format_args!("no device events: {error}")),
    };
    sleep(STARTED).await;
    let mut online = resources::at_start(root, &uses);
    let disks = Rc::new(Signal::default());
    agent.spawn(disks::run(agent.clone(), disks.clone()));
    let nics = Rc::new(Nics::default());
    if built::FIRST_BOOT {
        agent.spawn(nics::run(agent.clone(), nics.clone()));
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
