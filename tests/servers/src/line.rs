//! The protocol between the outer VM and the machine around it: one JSON object per line.

use serde::{Deserialize, Serialize};

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
