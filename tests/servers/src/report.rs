//! The half that runs in the outer VM: sets the server up, runs the checks, and sends a line for
//! each step.

use std::fs::File;
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::world::{World, round};
use crate::{checks, instance, setup};

pub fn check(world: &World, wanted: &[String]) -> Result<ExitCode, String> {
    let mut port = File::options().write(true).open(PORT).map_err(|e| format!("{PORT}: {e}"))?;
    let mut say = |line: Line| -> Result<(), String> {
        let text = serde_json::to_string(&line).map_err(|error| error.to_string())? + "\n";
        port.write_all(text.as_bytes()).map_err(|error| format!("{PORT}: {error}"))
    };
    let why = look(world, wanted, &mut say).err().unwrap_or_default();
    say(Line::Over(why))?;
    Ok(ExitCode::SUCCESS)
}

fn look(world: &World, wanted: &[String], say: Say<'_>) -> Result<(), String> {
    if !setup::is_up(world)? {
        setup::server(world)?;
        say(step("the server is up"))?;
    }
    if wanted.is_empty() {
        return Ok(());
    }
    instance::start(world, &format!("{}.tar", world.agent.name()), say)?;
    for check in checks::of(world.server).filter(|check| wanted.contains(&check.id())) {
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

/// Port on which the machine around the outer VM listens: virtio-serial.
pub const PORT: &str = "/dev/virtio-ports/mote.report";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Line {
    /// A step of the preparations, and seconds since the outer VM's start.
    Step(String, f64),
    Begin(String),
    /// The end of a check: its name, what it saw or why it fails, seconds.
    End(String, Result<String, String>, f64),
    /// Nothing more will come, for this reason.
    Over(String),
}

pub type Say<'a> = &'a mut dyn FnMut(Line) -> Result<(), String>;

/// Returns a step that begins or ends now.
pub fn step(text: &str) -> Line {
    Line::Step(text.to_owned(), uptime())
}

fn uptime() -> f64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or_default()
}
