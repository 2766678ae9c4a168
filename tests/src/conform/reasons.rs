//! Reasons for the differences between agents. Every cell that is not "yes" needs a reason, and
//! every reason such a cell.

use mote_checks::{Names, Reason};

const fn because(claim: &'static str, columns: Names, why: &'static str) -> Reason {
    mote_checks::because(&[], claim, columns, why)
}

const fn sometimes(claim: &'static str, columns: Names, why: &'static str) -> Reason {
    mote_checks::sometimes(&[], claim, columns, why)
}

const MOTE: Names = &["mote/lxd", "mote/incus"];
const MOTE_INCUS: Names = &["mote/incus"];
const GO: Names = &["lxd-agent 5.0.2", "incus-agent 6.0.4"];
const LXD_AGENT: Names = &["lxd-agent 5.0.2"];
const INCUS_AGENT: Names = &["incus-agent 6.0.4"];

const OLDER: &str = "It is older than this behaviour.";
const SIGNALS: &str = "It is older than the rule of 128 plus the signal.";

pub const REASONS: &[Reason] = &[
    because(
        "refused callers are told 500 `Not authorized`",
        MOTE,
        "mote authenticates the caller before it reads anything (P§9.7, not copied); hosts never get here.",
    ),
    because(
        "`GET /` is answered without a certificate",
        MOTE,
        "No client needs it, and untrusted callers get nothing (P§9.7, not copied).",
    ),
    because("a connection without a head is closed after 3 s", GO, OLDER),
    because("an unknown path is LXD's list, or Incus' 404", LXD_AGENT, OLDER),
    because("a host that cannot be reached is 500, with LXD's words", LXD_AGENT, OLDER),
    because("403 counts as reachable on LXD, as an error on Incus", LXD_AGENT, OLDER),
    because(
        "403 counts as reachable on LXD, as an error on Incus",
        MOTE_INCUS,
        "A host that refuses is reachable; Incus never refuses here.",
    ),
    because("`may_cancel` and `resources` are as this server has them", LXD_AGENT, OLDER),
    because("an unknown one is 500, in the server's words", LXD_AGENT, OLDER),
    because("waiting too long is 500 `context deadline exceeded`", LXD_AGENT, OLDER),
    because("waiting gives the operation when it has ended", LXD_AGENT, OLDER),
    because(
        "waiting for a failed one gives the operation (LXD), or is an error reply (Incus)",
        LXD_AGENT,
        OLDER,
    ),
    because("DELETE waits for the end (LXD), or is 400 (Incus)", LXD_AGENT, OLDER),
    sometimes(
        "a secret opens one socket, not two",
        GO,
        "It may accept a second socket, because it upgrades before it checks.",
    ),
    sometimes(
        "in this order: Running, Running with `return`, Success, five times of five",
        GO,
        "Each event has its own goroutine, so events may overtake each other.",
    ),
    because("without `type`, config and device are among them", LXD_AGENT, OLDER),
    because(
        "a disk that cannot be mounted is 500 with the reason (LXD) or 200 (Incus) within 3 s",
        LXD_AGENT,
        OLDER,
    ),
    because(
        "another user opens his pipes by name",
        GO,
        "Their pipes belong to root (lxc#3344 is the same fault in containers).",
    ),
    because(
        "the command is looked for in the `PATH` asked for",
        GO,
        "It searches the agent's own `PATH` (P§9.4, not copied).",
    ),
    sometimes(
        "what a command writes right before it ends arrives, 30 times of 30",
        LXD_AGENT,
        "The last output on a terminal may be lost.",
    ),
    because("death by a signal is 128 and the signal", GO, SIGNALS),
    because("a signal on the control socket arrives", GO, SIGNALS),
    because("a control socket that drops kills the command", GO, SIGNALS),
    because(
        "but not if its output had ended before",
        GO,
        "They kill the command, which may still be working although its output has ended.",
    ),
    because("with a terminal, such a child is not waited for", LXD_AGENT, OLDER),
    because("REALPATH `.` is the agent's directory (LXD), or `/` (Incus)", INCUS_AGENT, OLDER),
    because(
        "the place counts even if APPEND is given",
        MOTE,
        "mote appends, like OpenSSH's server; LXD and Incus never ask for it.",
    ),
    because("OPEN makes a file with the mode that is given", GO, "pkg/sftp ignores the mode."),
    because(
        "SETSTAT changes all of these at once",
        GO,
        "pkg/sftp reads the attributes in an order that differs from the protocol's.",
    ),
    because("`fsync@openssh.com` is there", GO, "pkg/sftp does not support it."),
    because("`memory` is what /proc/meminfo says", LXD_AGENT, OLDER),
    because(
        "`processes` counts 1 and its descendants (LXD), or all (Incus)",
        INCUS_AGENT,
        "It counts only the children of process 1, as LXD did for some time (P§9.1).",
    ),
    because("`memory` has its members; totals are those of /proc/meminfo", LXD_AGENT, OLDER),
    because("`procs_total` is more than 0, `cpus` is there", LXD_AGENT, OLDER),
    because("`boot_time_seconds` and `time_seconds` are there", INCUS_AGENT, OLDER),
    because("`GET /1.0` tells version, type, location and state", LXD_AGENT, OLDER),
    because("for somebody untrusted it tells no `environment`", LXD_AGENT, OLDER),
    because("PATCH Ready is 200 without a body, and the host knows", LXD_AGENT, OLDER),
    because("PATCH of another state is 400", LXD_AGENT, OLDER),
    because("PATCH of what does not parse is an error", LXD_AGENT, OLDER),
    because(
        "POST where only GET is known: 501 (LXD), as GET (Incus)",
        LXD_AGENT,
        "It is older than the 501.",
    ),
    because(
        "POST where only GET is known: 501 (LXD), as GET (Incus)",
        MOTE_INCUS,
        "Answering a write like a read would hide a mistake.",
    ),
    because("an unknown path there is LXD's list, or Incus' 404", LXD_AGENT, OLDER),
    because("the host's 403 is shown as it is", LXD_AGENT, OLDER),
    because("an image is exported as a stream", LXD_AGENT, OLDER),
    because("Ubuntu Pro's state and token come as JSON", LXD_AGENT, OLDER),
    because("the bearer's token is handed on", LXD_AGENT, OLDER),
    because("bytes go to a port in the guest and come back", INCUS_AGENT, OLDER),
    because("what the other side says first is not lost", INCUS_AGENT, OLDER),
    because("a closed port is 500, in these words", INCUS_AGENT, OLDER),
    because("port 0 and a wrong upgrade are 400", INCUS_AGENT, OLDER),
    because("connections are carried into the guest", INCUS_AGENT, OLDER),
    because(
        "an empty command is 400, and the agent lives",
        GO,
        "It accepts the command and crashes (P§9.4).",
    ),
];
