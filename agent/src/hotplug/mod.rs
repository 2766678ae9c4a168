//! What the host adds to the VM while it runs is brought into use: CPUs, memory, room on disks, NICs; and what is done when it
//! runs again.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use mote_core::hostapi::policy::Part;
use mote_core::hotplug::event::{is_made_up, is_of_disk};
use smol::future::yield_now;

use crate::agent::Agent;
use crate::built;
use crate::runtime::clock::sleep;
use crate::runtime::log;
use crate::runtime::reactor::Async;
use crate::runtime::wake::Signal;
use crate::sys::sandbox;
use crate::system::uevent;

use self::nics::Nics;

mod disks;
mod nics;
mod resources;

/// After the start: what the host waits for comes first.
const STARTED: Duration = Duration::from_millis(500);
/// Most events that are handled before other tasks run.
const BURST: usize = 32;

/// Follows the host, for ever. Returns only where the kernel tells of no devices, or lets us change nothing.
pub(crate) async fn run(agent: Rc<Agent>) {
    if sandbox::is_entered() {
        return;
    }
    let root = agent.options.root.as_path();
    let uses = |part: Part| agent.policy.get().uses(part);
    // First: what is added during the look below is seen by one of both.
    let socket = match uevent::listen().and_then(Async::new_nonblocking) {
        Ok(socket) => socket,
        Err(error) => return log::debug(format_args!("no events of devices: {error}")),
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
