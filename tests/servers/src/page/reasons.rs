//! Why a check fails, where it does: whose fault it is. A failure needs a reason.

use crate::server::{Agent, Server};

/// A known failure.
#[derive(Clone, Copy, Debug)]
pub struct Reason {
    /// With which server.
    pub server: Server,
    /// With whose agents.
    pub agents: &'static [Agent],
    /// Which check.
    pub check: &'static str,
    /// Whose fault it is, and why.
    pub why: &'static str,
}

/// All of them.
pub const REASONS: &[Reason] = &[
    Reason { server: Server::Incus, agents: OWN, check: "exec.exit_codes", why: KILLED },
    Reason { server: Server::Incus, agents: OWN, check: "terminal.window_change", why: KILLED },
    Reason { server: Server::Incus, agents: OWN, check: "files.delete", why: RELATIVE },
    Reason { server: Server::Incus, agents: OWN, check: "devices.directory", why: LEFT },
    Reason { server: Server::Incus, agents: OWN, check: "devices.directory_read_only", why: LEFT },
    Reason { server: Server::Incus, agents: OWN, check: "life.agent_killed", why: SLOW },
    Reason {
        server: Server::Incus,
        agents: OWN,
        check: "life.agent_ends_during_command",
        why: CUT_OFF,
    },
    Reason { server: Server::Incus, agents: OWN, check: "boot.stop_during_command", why: CUT_OFF },
    Reason { server: Server::Incus, agents: OWN, check: "life.server_killed", why: FORGOTTEN },
    Reason { server: Server::Incus, agents: OWN, check: "life.server_restarted", why: FORGOTTEN },
    Reason { server: Server::Lxd, agents: OWN, check: "exec.exit_codes", why: KILLED },
    Reason { server: Server::Lxd, agents: OWN, check: "terminal.window_change", why: KILLED },
    Reason { server: Server::Lxd, agents: OWN, check: "guestapi.off_and_on", why: ASKED_BACK },
    Reason { server: Server::Lxd, agents: OWN, check: "life.agent_killed", why: SLOW },
    Reason {
        server: Server::Lxd,
        agents: OWN,
        check: "life.agent_ends_during_command",
        why: CUT_OFF,
    },
    Reason { server: Server::Lxd, agents: OWN, check: "boot.stop_during_command", why: CUT_OFF },
];

const OWN: &[Agent] = &[Agent::Own];
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

const ASKED_BACK: &str = "The server's agent asks the server back before it answers the server's `PUT /1.0`, and LXD 5.0.2 refuses \
    everything while its database still says that the guest API is off: in an instance that runs it cannot be allowed again. mote \
    answers first.";

/// What the page says of a server before its table: what was not run, and why.
#[must_use]
pub fn limits(server: Server) -> &'static [&'static str] {
    match server {
        Server::Incus => &[NOT_RUN, INCUS],
        Server::Lxd => &[NOT_RUN, LXD],
    }
}

const NOT_RUN: &str = "\
Not run: OVMF, secure boot and a guest with systemd (the guest is a kernel and an initramfs that QEMU itself
loads: a boot loader takes minutes in emulated emulation); clusters and live migration (they take two servers);
several instances at once. A directory that was there from the start was not taken out of the running instance
with either agent (`Failed to detach path device after 10s`); it is removed while that is stopped. A large transfer has 4 MiB and a series
40 commands: `--big 50 --turns 200` is for machines with KVM (`--kvm`), which none of these runs had.";

const INCUS: &str = "\
With incus-agent, devices.directory_long_name ran for 20 minutes without an end; it was left out, and so was
devices.two_directories. The other checks without a result were not reached by the runs that there was time for.";

const LXD: &str = "\
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
    REASONS.iter().find(|reason| {
        reason.server == server && reason.agents.contains(&agent) && reason.check == check
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks;

    #[test]
    fn each_reason_is_for_a_check_that_there_is() {
        for reason in REASONS {
            let known = checks::of(reason.server).any(|check| check.id() == reason.check);
            assert!(known, "{}", reason.check);
        }
    }
}
