//! Known reasons why a check fails.

use std::sync::LazyLock;

use mote_checks::{Reason, reasons};

use crate::server::{Agent, Server};

pub static REASONS: LazyLock<Vec<Reason>> = LazyLock::new(|| reasons(include_str!("reasons.txt")));

/// Returns the paragraphs before a server's table: what is not covered, and why.
pub fn limits(server: Server) -> &'static [&'static str] {
    match server {
        Server::Incus => &[NOT_RUN],
        Server::Incus60 => &[NOT_RUN, NOT_RUN_INCUS_6],
        Server::Lxd => &[NOT_RUN, NOT_RUN_LXD],
    }
}

const NOT_RUN: &str = "\
Not covered: OVMF, secure boot and systemd in the guest (QEMU loads a kernel and an initramfs itself), clusters, live migration,
several instances at once, and removing a directory that the instance was started with. A large transfer has 4 MiB, a series 40
commands.";

const NOT_RUN_INCUS_6: &str = "\
With incus-agent, devices.directory_long_name did not end within 20 minutes; it and devices.two_directories were not run again.";

const NOT_RUN_LXD: &str = "\
The NIC is a macvlan, because LXD 5.0.2 opens a tap device without the rights that Debian 13's kernel requires. LXD 5.0.2 cannot
add a directory to a running instance, and has no device events for VMs, no status Ready, no `top` and no `file create`.";

pub fn find(server: Server, agent: Agent, check: &str) -> Option<&'static Reason> {
    mote_checks::find(&REASONS, server.name(), check, agent.title(server))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks;

    #[test]
    fn each_reason_has_a_check() {
        for reason in REASONS.iter() {
            let all = Server::ALL.into_iter();
            let mut all = all.filter(|server| {
                reason.groups.is_empty() || reason.groups.contains(&server.name())
            });
            let is_known =
                all.any(|server| checks::of(server).any(|check| check.id() == reason.check));
            assert!(is_known, "{}", reason.check);
        }
    }
}
