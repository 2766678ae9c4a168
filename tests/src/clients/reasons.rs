//! Reasons for the differences between agents. Every cell that is not "yes" needs a reason, and
//! every reason such a cell.

use mote_checks::{Names, Reason, because, find, sometimes};

/// True if there is a reason for a case in a column.
#[must_use]
pub fn explained(heading: &str, case: &str, title: &str) -> bool {
    find(REASONS, heading, case, title).is_some()
}

const MOTE: Names = &["mote/lxd", "mote/incus"];
const GO: Names = &["lxd-agent 5.0.2", "incus-agent 6.0.4"];
const LXD_AGENT: Names = &["lxd-agent 5.0.2"];

const GO_CLIENTS: Names = &["Incus' Go client", "LXD's Go client"];
const WEBSOCKETS: Names = &["Python's websockets", "node's ws"];
const LOADS: Names = &["ab", "wrk", "many idle clients", "slowhttptest"];

const EMULATED: &str = "It may take longer than the client waits: each key costs it two signatures in an \
                        emulated CPU.";

/// All known differences.
pub const REASONS: &[Reason] = &[
    because(
        GO_CLIENTS,
        "the extension `resources`*",
        MOTE,
        "No agent has `/1.0/resources`; who looks for the extension is better told so.",
    ),
    because(GO_CLIENTS, "exec, death by a signal*", GO, "It predates 128 plus the signal."),
    because(
        GO_CLIENTS,
        "exec, 2 MiB of arguments that JSON doubles*",
        MOTE,
        "mote takes 3 MiB of JSON for a command, \
         so that what it holds fits into 8 MiB of memory.",
    ),
    sometimes(
        GO_CLIENTS,
        "exec, 2 MiB of arguments*",
        GO,
        "It repeats them in its answer and in each event; emulated, that may take longer than the 5 s \
         that a command waits for its sockets.",
    ),
    sometimes(
        GO_CLIENTS,
        "exec, a terminal*",
        LXD_AGENT,
        "The last words on a terminal may be lost.",
    ),
    sometimes(
        GO_CLIENTS,
        "exec, 30 commands in turn*",
        GO,
        "Now and then it refuses a socket of a command that it has just started.",
    ),
    sometimes(
        GO_CLIENTS,
        "exec, 20 commands at once*",
        GO,
        "Emulated, the handshakes for 100 sockets may take longer than the 5 s that a command waits for \
         its own.",
    ),
    sometimes(
        GO_CLIENTS,
        "the agent lives on*",
        GO,
        "It has died of a nil pointer when many commands ran at once.",
    ),
    because(&["pkg/sftp"], "modes and times*", GO, "pkg/sftp's server leaves the setuid bit out."),
    because(
        &["curl, as the host"],
        "exec of nothing*",
        GO,
        "It takes the command, and dies of it once its sockets are there (P§9.4).",
    ),
    because(
        &["curl, as the host"],
        "HTTP/2 is offered*",
        GO,
        "Go's server has HTTP/2 for whoever offers it; hosts do not.",
    ),
    because(
        &["Python's websockets, as the host"],
        "the exit code, by /wait*",
        LXD_AGENT,
        "It predates `/wait`.",
    ),
    because(
        &["Python's websockets, as the host"],
        "an exit code, by events*",
        LXD_AGENT,
        "It predates `/wait`.",
    ),
    because(
        &["nc, typed by hand"],
        "a length and chunks*",
        LXD_AGENT,
        "Its Go drops the length, which RFC 9112 6.1 leaves to it; the newer one's 400 is for the empty \
         body.",
    ),
    because(
        &["nc, typed by hand"],
        "an empty line*",
        GO,
        "Go's server passes none over; RFC 9112 2.2 asks for it.",
    ),
    sometimes(&["requests over unix sockets"], "60 keys*", GO, EMULATED),
    sometimes(&["node's http"], "64 keys*", GO, EMULATED),
    because(
        &["node's http"],
        "events come*",
        GO,
        "The lines of its stream's head end in LF alone, which node refuses.",
    ),
    because(
        &["gorilla/websocket"],
        "a length with its top bit*",
        GO,
        "gorilla's server cuts the connection.",
    ),
    because(
        WEBSOCKETS,
        "a close of one byte*",
        GO,
        "gorilla's server echoes a close without a code.",
    ),
    sometimes(LOADS, "ab,*", GO, EMULATED),
    sometimes(LOADS, "a key,*", GO, EMULATED),
    sometimes(LOADS, "another client is served*", GO, EMULATED),
    sometimes(LOADS, "slow*", GO, EMULATED),
];

/// Clients that could not be run, and the reason.
pub const NOT_RUN: &[(&str, &str)] = &[
    (
        "`AF_VSOCK` of this machine's kernel",
        "the machine that this was run on has no vhost-vsock, so the VMs have it by vhost-device-vsock, whose host \
         side is unix sockets; every client reaches it through them.",
    ),
    (
        "socat",
        "its part, TCP that leads to a unix socket, is played by the harness, which finds a free port.",
    ),
    (
        "pylxd as a guest's client",
        "it knows the API of servers only; devlxd has no envelope. It is used with the agent's port.",
    ),
    (
        "busybox wget with `-T`",
        "busybox 1.35 dies of it, whatever the server (`Segmentation fault`).",
    ),
    (
        "200 connections of wrk and 1,200 idle or slow ones from this machine into a VM",
        "vhost-device-vsock stalls at 200 busy connections: there wrk has 64 and the others 200; inside the VM \
         wrk has 120 and slowhttptest 600.",
    ),
    (
        "programs inside the VMs of the Go agents",
        "an emulated Go agent is behind with what slowhttptest leaves for minutes; they are watched from outside.",
    ),
    (
        "cloud-init 22.4 on Debian 13",
        "its adapter for unix sockets does not go with `requests` 2.32 of that release; on Debian 12 it is run.",
    ),
    (
        "sshfs, node and Python inside the VM",
        "the image has neither FUSE's tools nor interpreters; they reach the agent of the VM over vsock, and \
         its devlxd socket through the bridge.",
    ),
    (
        "`mote-host` between a client and the agent",
        "it is no server that other clients could speak to; `tests/servers` has real ones.",
    ),
    (
        "a certificate that has run out",
        "mote-host's certificates are good for years; docs/explanation/security.md says what mote does with one, and why.",
    ),
];
