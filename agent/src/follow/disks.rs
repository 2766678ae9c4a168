//! Disks that the host makes larger: where the guest's policy wants it, a worker grows what is on them, `workers/grow`.

use std::rc::Rc;
use std::time::Duration;

use mote_core::hostapi::policy::Part;

use crate::agent::Agent;
use crate::runtime::clock::sleep;
use crate::runtime::log;
use crate::runtime::wake::{NEVER, Signal};
use crate::workers::run::run as run_worker;

/// After an event: a host that makes a disk larger may do so twice, and somebody else may use what it has added.
const MOMENT: Duration = Duration::from_millis(200);
/// A file system that is frozen does not grow until it is thawed. There is one worker at most until then.
const LONGEST: Duration = Duration::from_hours(24);

/// Has disks grown, at the start and each time that `changed` is raised, one worker after the other. An initramfs has
/// mounted nothing yet.
pub(super) async fn run(agent: Rc<Agent>, changed: Rc<Signal>) {
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
