//! A command that runs for a while, says nothing, and ends by itself or because the agent ends.

use futures_lite::FutureExt;

use super::outcome::{Failure, Held};
use crate::agent::Agent;
use crate::agent::exec_sockets::Sockets;
use crate::below::here::here;
use crate::host::calls::{MISSING, NOT_THERE};
use crate::machine::executor::{MILLI, SECOND, Zone};
use crate::machine::wait::sleep;

pub(super) async fn execute(
    agent: &Agent,
    sockets: &Sockets,
    request: Held,
) -> Result<i32, Failure> {
    let is_missing = request.0.name() == MISSING;
    drop(request);
    let here = here();
    if is_missing {
        return Err(Failure { text: NOT_THERE.into(), code: Some(127) });
    }
    let life = async {
        sleep(&here.sim, Zone::Guest, here.sim.dice.between(MILLI, 8 * SECOND)).await;
        0
    };
    let hung_up = async {
        agent.operations.hung_up().await;
        129
    };
    let code = hung_up.or(life).await;
    sockets.finish(crate::agent::exec_sockets::CONTROL);
    Ok(code)
}
