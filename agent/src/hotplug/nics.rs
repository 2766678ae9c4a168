//! Names hot-plugged NICs in a worker (`first_boot/nics`), because the share may hang. Incus writes
//! no file for such a NIC, so the agent requests the devices when Incus reports one.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use mote_core::hostapi::policy::Capability;
use mote_core::hotplug::nics::Plugged;
use smol::future::FutureExt;

use crate::agent::Agent;
use crate::runtime::{NEVER, Signal, log, now};
use crate::workers::run::run as run_worker;

/// Time limit of the worker.
const LIMIT: Duration = Duration::from_secs(30);

/// Pending events.
#[derive(Default)]
pub(super) struct Nics {
    plugged: RefCell<Plugged>,
    changed: Signal,
}

impl Nics {
    pub(super) fn see(&self, event: &[u8]) {
        if self.plugged.borrow_mut().see(event, now()).is_some() {
            self.changed.raise();
        }
    }
}

/// Names new NICs, one worker after another.
pub(super) async fn run(agent: Rc<Agent>, nics: Rc<Nics>) {
    // Includes events from before this task ran.
    let mut seen = [NEVER; 2];
    loop {
        let [plugged, reported] = seen;
        nics.changed.after(plugged).or(agent.nic_added.after(reported)).await;
        seen = [nics.changed.seen(), agent.nic_added.seen()];
        // Not in an initramfs, whose NICs are for the real root to name.
        if !agent.policy.allows(Capability::Network) || agent.options.is_early() {
            continue;
        }
        let first = nics.plugged.borrow().announced_after_event(now());
        let Some(first) = first.map(|first| first.to_string()) else { continue };
        // Incus reports a NIC before the driver has found it, so its index is known only now.
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
        if let Err(error) = run_worker(&agent, &words, &devices, 0, LIMIT).await {
            log::debug(format_args!("cannot rename new NICs: {error}"));
        }
    }
}
