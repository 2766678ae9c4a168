//! Grows partitions and file systems of enlarged disks, in a worker (`workers/grow`), if the
//! guest's policy allows it.

use std::rc::Rc;
use std::time::Duration;

use mote_core::hostapi::policy::Part;

use crate::agent::Agent;
use crate::runtime::{NEVER, Signal, log, sleep};
use crate::workers::run::run as run_worker;

/// Pause after an event: the host may enlarge a disk twice, or another program may use the space.
const MOMENT: Duration = Duration::from_millis(200);
/// Time limit of a worker: a frozen file system does not grow until it is thawed.
const LONGEST: Duration = Duration::from_hours(24);

/// Starts a worker at once and each time `changed` is raised, one after another. Does nothing in an
/// initramfs, which has mounted nothing yet.
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
