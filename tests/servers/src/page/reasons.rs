//! Known reasons why a check fails.

use mote_checks::{Names, Reason, because};

use crate::server::{Agent, Server};

pub const REASONS: &[Reason] = &[
    because(ALL, "exec.exit_codes", OWN, KILLED),
    because(ALL, "terminal.window_change", OWN, KILLED),
    because(INCUS_6, "files.delete", OWN, RELATIVE),
    because(INCUS_7, "files.mount", OWN, ABSOLUTE),
    because(INCUS_7, "files.push_recursive", OWN, ABSOLUTE),
    because(INCUS_7, "files.pull_recursive", OWN, ABSOLUTE),
    because(INCUS_6, "devices.directory", OWN, LEFT),
    because(INCUS_6, "devices.directory_read_only", OWN, LEFT),
    because(INCUS_7, "devices.directory", OWN, BY_TAG),
    because(ALL, "life.agent_killed", OWN, SLOW),
    because(ALL, "life.agent_ends_during_command", OWN, CUT_OFF),
    because(ALL, "boot.stop_during_command", OWN, CUT_OFF),
    because(INCUS, "life.server_killed", OWN, FORGOTTEN),
    because(INCUS, "life.server_restarted", OWN, FORGOTTEN),
    because(INCUS, "hotplug.limits_cpu", OWN, NOT_FOLLOWED),
    because(INCUS, "hotplug.limits_memory", OWN, NOT_FOLLOWED),
    because(INCUS, "hotplug.nic_plugged_in", OWN, NOT_FOLLOWED),
    because(ALL, "hotplug.clock_after_pause", OWN, NOT_FOLLOWED),
    because(INCUS, "boot.stateful_stop", OWN, NOT_FOLLOWED),
    because(LXD, "guestapi.off_and_on", OWN, ASKED_BACK),
];

// Names by server, and by column.
const ALL: Names = &["incus", "incus-6.0", "lxd"];
const INCUS: Names = &["incus", "incus-6.0"];
const INCUS_6: Names = &["incus-6.0"];
const INCUS_7: Names = &["incus"];
const LXD: Names = &["lxd"];
const OWN: Names = &["incus-agent", "lxd-agent"];
const KILLED: &str = "Debian's build of the agent reports -1 for a command that a signal ends. mote reports 128 plus the signal, as the \
    agent's sources do.";

const RELATIVE: &str = "`incus file delete` sends a path without its leading slash. The agent resolves it from its own working directory, \
    mote from `/`.";

const LEFT: &str = "The agent of Incus 6.0 does not unmount a directory that is removed from a running instance; later releases and mote do.";

const BY_TAG: &str = "The agent runs `umount TAG`, which util-linux resolves and this guest's busybox does not. mote calls the \
    kernel.";

const ABSOLUTE: &str = "The agent makes the target of a relative link absolute; mote keeps it.";

const SLOW: &str = "The limit is twice what a machine without emulation needs. The Go agent (14 MB) starts more slowly.";

const CUT_OFF: &str = "The agent exits without reporting how its commands end, and this server turns that into 255. mote reports 129, as \
    for containers (docs/protocol/exec.md).";

const FORGOTTEN: &str = "The server forgets Ready when it restarts. Its agent does not repeat it; mote does (docs/protocol/ready.md).";

const NOT_FOLLOWED: &str = "The agent leaves this to the guest's udev rules, modules and time service; this guest has none (docs/reference/hot-plug.md).";

const ASKED_BACK: &str = "The agent calls the server back before it answers `PUT /1.0`, and LXD 5.0.2 refuses the call because its database \
    still says that the guest API is off. mote answers first.";

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
    mote_checks::find(REASONS, server.name(), check, agent.title(server))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks;

    #[test]
    fn each_reason_has_a_check() {
        for reason in REASONS {
            let all = Server::ALL.into_iter();
            let mut all = all.filter(|server| reason.groups.contains(&server.name()));
            let is_known =
                all.any(|server| checks::of(server).any(|check| check.id() == reason.check));
            assert!(is_known, "{}", reason.check);
        }
    }
}
