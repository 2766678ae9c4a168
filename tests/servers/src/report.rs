//! The half that runs in the outer VM: sets the server up, runs the checks, and sends a line for
//! each step.

use std::fs::File;
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use crate::checks;
use crate::instance;
use crate::line::{Line, PORT, Say, step};
use crate::server::{Agent, Server};
use crate::setup;
use crate::world::{World, round};

/// `check SERVER AGENT BIG TURNS SLOW CHECK,...`: in the outer VM. Without a check it only sets the
/// server up.
pub fn check(words: &[String]) -> Result<ExitCode, String> {
    let usage = || "usage: mote-servers check SERVER AGENT BIG TURNS SLOW CHECK,...".to_owned();
    let [server, agent, big, turns, slow, wanted] = words else { return Err(usage()) };
    let world = World {
        server: Server::named(server).ok_or_else(usage)?,
        agent: Agent::named(agent).ok_or_else(usage)?,
        big: big.parse().map_err(|_| usage())?,
        turns: turns.parse().map_err(|_| usage())?,
        slow: slow.parse().map_err(|_| usage())?,
    };
    let mut port = File::options().write(true).open(PORT).map_err(|e| format!("{PORT}: {e}"))?;
    let mut say = |line: Line| -> Result<(), String> {
        let text = serde_json::to_string(&line).map_err(|error| error.to_string())? + "\n";
        port.write_all(text.as_bytes()).map_err(|error| format!("{PORT}: {error}"))
    };
    let why = look(&world, wanted, &mut say).err().unwrap_or_default();
    say(Line::Over(why))?;
    Ok(ExitCode::SUCCESS)
}

fn look(world: &World, wanted: &str, say: Say<'_>) -> Result<(), String> {
    if !setup::is_up(world)? {
        setup::server(world)?;
        say(step("the server is up"))?;
    }
    if wanted.is_empty() {
        return Ok(());
    }
    instance::start(world, &format!("{}.tar", world.agent.name()), say)?;
    for check in
        checks::of(world.server).filter(|check| wanted.split(',').any(|id| id == check.id()))
    {
        checks::ready(world).map_err(|why| format!("before {}: {why}", check.id()))?;
        say(Line::Begin(check.id()))?;
        let begun = Instant::now();
        let seen = (check.run)(world);
        // KVM stopped it: emulated virtualisation fails at times, which says nothing about the
        // agent.
        if seen.is_err() && world.status()? == "Error" {
            return Err(format!("the instance's QEMU met an internal error during {}", check.id()));
        }
        say(Line::End(check.id(), seen, round(begun.elapsed())))?;
    }
    Ok(())
}
