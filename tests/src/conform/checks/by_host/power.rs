//! The end of the VM, which must come last.

use std::io::Read;

use super::cli::{ended, started};
use crate::conform::agent::Agent;
use crate::conform::{Check, Claim, Group, equal, hold, same};
use crate::host::NAME;

const LIFE: Group = Group("Life", "P§1.3");

pub(crate) const ALL: &[Check] = &[
    LIFE.is("the agent has lived through all this", lives).alone(),
    LIFE.of("P§4.1").is("a power cut is a disconnection", cut).alone(),
];

fn lives(agent: &Agent) -> Claim {
    same("names of it", agent.guest("grep -c Name /proc/$(cat /run/agent.pid)/status")?, "1")
}

fn cut(agent: &Agent) -> Claim {
    let (mut child, _output) =
        started(agent, &[NAME, "--", "sh", "-c", "echo on; sleep 60"], "on\n")?;
    agent.cut();
    equal("the command", ended(&mut child, "the power cut")?, Some(129))?;
    let mut said = String::new();
    let mut errors = child.stderr.take().ok_or("no pipe")?;
    errors.read_to_string(&mut said).map_err(|error| error.to_string())?;
    hold(&said, said.contains("Disconnected: QEMU ended"))
}
