//! What the host adds to the VM while it runs is brought into use: CPUs and memory.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use futures_lite::future::yield_now;
use mote_core::follow::resources::Added;
use mote_core::hostapi::policy::Capability;

use crate::agent::Agent;
use crate::runtime::clock::sleep;
use crate::runtime::log;
use crate::runtime::reactor::Async;
use crate::sys::sandbox;
use crate::system::uevent;

use self::resources::Online;

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
    let is_allowed = || agent.policy.get().features.allows(Capability::Resources);
    // First: what is added during the look below is seen by one of both.
    let socket = match uevent::listen() {
        Ok(socket) => Async::new_nonblocking(socket),
        Err(error) => return log::debug(format_args!("no events of devices: {error}")),
    };
    sleep(STARTED).await;
    if is_allowed() {
        resources::at_start(root);
    }
    loop {
        let mut online = Online::default();
        for _ in 0..BURST {
            let mut buffer = [0; uevent::EVENT];
            let event =
                socket.try_read(|socket| uevent::next(socket, &mut buffer).map(Added::of_event));
            match event {
                Ok(Some(added)) if is_allowed() => online.bring(root, added),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Events were lost.
                Err(_) if is_allowed() => online.bring_all(root),
                Err(_) => {}
            }
        }
        online.log();
        yield_now().await;
        if socket.readable().await.is_err() {
            return;
        }
    }
}
