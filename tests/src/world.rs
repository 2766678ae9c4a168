//! A VM with the agent of a column in it, and its host.

use std::time::{Duration, Instant};

use crate::column::Column;
use crate::host::Host;
use crate::vm::{Spec, Vm};
use crate::{Scratch, patient, tool};

/// From power-on to CONNECTED, under software emulation on a busy machine.
pub const BOOT: Duration = Duration::from_secs(90);

/// All that runs for one agent. Dropped in this order.
#[derive(Debug)]
pub struct World {
    /// The machine.
    pub vm: Vm,
    /// The host.
    pub host: Host,
    /// Where all their files are.
    pub scratch: Scratch,
}

/// The VM for a column, in the image that holds all agents; the older build has an image of its own.
#[must_use]
pub fn spec(column: Column) -> Spec {
    let words = column.program().map(|name| format!("mote.start={name}")).unwrap_or_default();
    let image = if column == Column::Before {
        tool("MOTE_IMAGE_BEFORE", "target/image-before")
    } else {
        tool("MOTE_IMAGE_GO", "target/image-go")
    };
    Spec { image, port: column.port(), words, ..Spec::default() }
}

impl World {
    /// Starts the host, whose instance has this configuration, and switches the VM on.
    #[must_use]
    pub fn boot(column: Column, spec: &Spec, config: &[&str]) -> Self {
        let scratch = Scratch::new();
        let directory = scratch.0.as_path();
        let config: Vec<_> = config.iter().flat_map(|pair| ["--config", pair]).collect();
        let mut host = Host::of_vm(directory, spec, column.flavour(), &config);
        host.start();
        let vm = Vm::boot(directory, spec, &host.share);
        Self { vm, host, scratch }
    }

    /// Waits for CONNECTED.
    pub fn connected(&mut self, limit: Duration) {
        connected(&mut self.host, limit);
    }
}

/// Waits for CONNECTED of an agent that may be a slow one.
pub fn connected(host: &mut Host, limit: Duration) {
    let begun = Instant::now();
    while !host.is_connected() {
        assert!(begun.elapsed() < patient(limit), "waited {limit:?} for CONNECTED: {}", host.log());
        // On a busy machine an emulated agent may take longer than the 3 s a host gives it, and
        // hosts do not try again (P§2.3): one that is restarted does.
        if host.state()["last_put"]["ok"] == false {
            host.kill();
            host.start();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
