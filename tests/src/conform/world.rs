//! A VM with the agent of a column in it, and its host.

use std::time::{Duration, Instant};

use super::agent::Agent;
use super::{Check, Column, Seen, run};
use crate::host::Host;
use crate::vm::{Spec, Vm, qmp, vsock};
use crate::{Scratch, tool};

/// From power-on to CONNECTED, under software emulation on a busy machine.
const BOOT: Duration = Duration::from_secs(60);
/// The host asks once, and within 3 s (P§3.3); on a busy machine that may fail, and Go's agents do not
/// ask to be asked again.
const TRIES: usize = 4;

/// A VM whose agent is connected.
struct World {
    agent: Agent,
    _vm: Vm,
    _scratch: Scratch,
}

/// Boots the VM, runs the checks, switches it off.
///
/// # Panics
/// If the agent does not connect.
#[must_use]
pub fn look(column: Column, checks: &[Check]) -> Seen {
    let begun = Instant::now();
    let world = (0..TRIES).find_map(|_| World::boot(column)).expect("a connected agent");
    println!("{}: connected after {:.1} s", column.title(), begun.elapsed().as_secs_f64());
    let seen = run(&world.agent, checks);
    println!("{}: done after {:.1} s", column.title(), begun.elapsed().as_secs_f64());
    seen
}

impl World {
    fn boot(column: Column) -> Option<Self> {
        let scratch = Scratch::new();
        let directory = scratch.0.as_path();
        let (uds, monitor) = (vsock(directory), qmp(directory));
        let (flavour, port, start) = match column {
            Column::MoteLxd => ("lxd", "com.canonical.lxd", ""),
            // Debian's 5.0.2 writes to the old port, and blocks for ever on a dummy.
            Column::LxdAgent => ("lxd-5.0", "org.linuxcontainers.lxd", "lxd-agent"),
            Column::MoteIncus => ("incus", "org.linuxcontainers.incus", ""),
            Column::IncusAgent => ("incus", "org.linuxcontainers.incus", "incus-agent"),
        };
        let text = |path: &std::path::Path| path.display().to_string();
        let (uds_text, monitor) = (text(&uds), text(&monitor));
        let mut args = vec!["--flavour", flavour, "--vsock-uds", &uds_text, "--qmp", &monitor];
        let odd = format!("user.odd={}", super::checks::ODD);
        for pair in [
            "user.foo=bar",
            &odd,
            "cloud-init.user-data=#cloud-config\n",
            "mote.bearer=secret",
            "security.devlxd.images=true",
            "security.devlxd.management.volumes=true",
        ] {
            args.extend(["--config", pair]);
        }
        let mut host = Host::new(directory, &args);
        host.start();
        let words = if start.is_empty() { String::new() } else { format!("mote.start={start}") };
        let image = tool("MOTE_IMAGE_GO", "target/image-go");
        let spec = Spec { image, port, words, memory: 256, ..Spec::default() };
        let mut vm = Vm::boot(directory, &spec, &host.share);
        let begun = Instant::now();
        while !host.is_connected() {
            if begun.elapsed() > BOOT {
                return None;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let guest = vm.guest();
        let agent = Agent::new(column, uds, host, guest);
        Some(Self { agent, _vm: vm, _scratch: scratch })
    }
}
