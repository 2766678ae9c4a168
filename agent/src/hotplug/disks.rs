//! Grows what is on disks that the host enlarged, in a worker (`workers/grow`), if the guest's
//! policy wants that.

use std::rc::Rc;
use std::time::Duration;

use mote_core::hostapi::policy::Part;

use crate::agent::Agent;
use crate::runtime::clock::sleep;
use crate::runtime::log;
use crate::runtime::wake::{NEVER, Signal};
use crate::workers::run::run as run_worker;

/// Pause after an event: the host may enlarge a disk twice, and another program may use the new
/// space.
const MOMENT: Duration = Duration::from_millis(200);
/// A frozen file system does not grow until it is thawed. Until then there is only one worker.
const LONGEST: Duration = Duration::from_hours(24);

/// Starts a worker at the start and each time `changed` is raised, one after another. Skips an
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
