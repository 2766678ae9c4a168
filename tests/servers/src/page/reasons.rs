//! Why a check fails, where it does: whose fault it is. A failure needs a reason.

use mote_checks::{Names, Reason, because};

use crate::server::{Agent, Server};

/// All of them.
pub const REASONS: &[Reason] = &[
    because(INCUS, "exec.exit_codes", OWN, KILLED),
    because(INCUS, "terminal.window_change", OWN, KILLED),
    because(INCUS, "files.delete", OWN, RELATIVE),
    because(INCUS, "devices.directory", OWN, LEFT),
    because(INCUS, "devices.directory_read_only", OWN, LEFT),
    because(INCUS, "life.agent_killed", OWN, SLOW),
    because(INCUS, "life.agent_ends_during_command", OWN, CUT_OFF),
    because(INCUS, "boot.stop_during_command", OWN, CUT_OFF),
    because(INCUS, "life.server_killed", OWN, FORGOTTEN),
    because(INCUS, "life.server_restarted", OWN, FORGOTTEN),
    because(INCUS, "follow.limits_cpu", OWN, NOT_FOLLOWED),
    because(INCUS, "follow.limits_memory", OWN, NOT_FOLLOWED),
    because(INCUS, "follow.nic_plugged_in", OWN, NOT_FOLLOWED),
    because(INCUS, "follow.clock_after_pause", OWN, NOT_FOLLOWED),
    because(INCUS, "follow.ptp", OWN, NOT_FOLLOWED),
    because(INCUS, "boot.stateful_stop", OWN, NOT_FOLLOWED),
    because(LXD, "exec.exit_codes", OWN, KILLED),
    because(LXD, "terminal.window_change", OWN, KILLED),
    because(LXD, "guestapi.off_and_on", OWN, ASKED_BACK),
    because(LXD, "life.agent_killed", OWN, SLOW),
    because(LXD, "life.agent_ends_during_command", OWN, CUT_OFF),
    because(LXD, "boot.stop_during_command", OWN, CUT_OFF),
    because(LXD, "follow.clock_after_pause", OWN, NOT_FOLLOWED),
    because(LXD, "follow.ptp", OWN, NOT_FOLLOWED),
];

// By the server's name, and by the columns'.
const INCUS: Names = &["incus"];
const LXD: Names = &["lxd"];
const OWN: Names = &["incus-agent", "lxd-agent"];
const KILLED: &str = "The server's agent says -1 for a command that a signal ended; it predates 128 and the signal, which later \
    releases and mote say.";

const RELATIVE: &str = "`incus file delete` sends the path without its first slash, as its source says. The server's agent takes it from its own \
    working directory; mote takes it from `/`. The file was still there.";

const LEFT: &str = "The agent of Incus 6.0.4 leaves a directory mounted that was taken out of the running instance; a \
    current Incus' agent unmounts it (docs/protocol/differences.md).";

const SLOW: &str = "The limit, the same for all agents, is twice that of a machine which emulates nothing; the server's agent, 14 MB \
    of Go, takes longer to start.";

const CUT_OFF: &str = "The server's agent ends without a word about its commands, which this server takes for an error: 255. mote ends \
    them with 129, as a container's (docs/protocol/exec.md).";

const FORGOTTEN: &str = "The server forgets Ready when it ends, and its agent does not say it again; mote does \
    (docs/protocol/ready.md).";

const NOT_FOLLOWED: &str = "The server's agent leaves it to the guest: a CPU that is plugged in stays offline without a rule of udev, no driver is \
    loaded that gives memory back, a NIC is named at the agent's start only, \
    and the clock stays behind by the time of a pause or a stateful stop (docs/follow.md).";

const ASKED_BACK: &str = "The server's agent asks the server back before it answers the server's `PUT /1.0`, and LXD 5.0.2 refuses \
    everything while its database still says that the guest API is off: in an instance that runs it cannot be allowed again. mote \
    answers first.";

/// What the page says of a server before its table: what was not run, and why.
#[must_use]
pub fn limits(server: Server) -> &'static [&'static str] {
    match server {
        Server::Incus => &[NOT_RUN, NOT_RUN_INCUS],
        Server::Lxd => &[NOT_RUN, NOT_RUN_LXD],
    }
}

const NOT_RUN: &str = "\
Not run: OVMF, secure boot and a guest with systemd (the guest is a kernel and an initramfs that QEMU itself
loads: a boot loader takes minutes in emulated emulation); clusters and live migration (they take two servers);
several instances at once. A directory that was there from the start was not taken out of the running instance
with either agent (`Failed to detach path device after 10s`); it is removed while that is stopped. A large transfer has 4 MiB and a series
40 commands: `--big 50 --turns 200` is for machines with KVM (`--kvm`), which none of these runs had.";

const NOT_RUN_INCUS: &str = "\
With incus-agent, devices.directory_long_name ran for 20 minutes without an end; it was left out, and so was
devices.two_directories. The other checks without a result were not reached by the runs that there was time for.";

const NOT_RUN_LXD: &str = "\
The instance's NIC is a macvlan, on a veth pair that leads to the bridge, and a directory takes boot index 0. On a
bridge LXD 5.0.2 has QEMU open the tap device when it is `nobody` already, which the outer VM's kernel (Debian 13's)
refuses: `could not configure /dev/net/tun: Operation not permitted`. A kernel that QEMU itself loads takes boot index 0,
which LXD otherwise gives to the root disk: `The bootindex 0 has already been used`. Neither has to do with an agent. It is
not asked what LXD 5.0.2 does not have: a directory for an instance that runs (`Cannot attach directory while instance is
running`; boot.clean_stop_start_with_devices has one from the start), an event of a device (its driver of VMs sends
those of config only), the status Ready (since 5.5), `top`, `file create`.";

/// The one for a failure.
#[must_use]
pub fn find(server: Server, agent: Agent, check: &str) -> Option<&'static Reason> {
    mote_checks::find(REASONS, server.name(), check, agent.title(server))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks;

    #[test]
    fn each_reason_is_for_a_check_that_there_is() {
        for reason in REASONS {
            let all = [Server::Incus, Server::Lxd].into_iter();
            let mut all = all.filter(|server| reason.groups.contains(&server.name()));
            let is_known =
                all.any(|server| checks::of(server).any(|check| check.id() == reason.check));
            assert!(is_known, "{}", reason.check);
        }
    }
}
