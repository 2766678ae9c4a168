//! Reasons for the differences between agents. Every cell that is not "yes" needs a reason, and
//! every reason such a cell.

use mote_checks::{Names, Reason, because, find, sometimes};

/// True if there is a reason for a case in a column.
pub fn explained(heading: &str, case: &str, title: &str) -> bool {
    find(REASONS, heading, case, title).is_some()
}

const MOTE: Names = &["mote/lxd", "mote/incus"];
const GO: Names = &["lxd-agent 5.0.2", "incus-agent 6.0.4"];
const LXD_AGENT: Names = &["lxd-agent 5.0.2"];

const GO_CLIENTS: Names = &["Incus' Go client", "LXD's Go client"];
const WEBSOCKETS: Names = &["Python's websockets", "node's ws"];
const LOADS: Names = &["ab", "wrk", "many idle clients", "slowhttptest"];

const EMULATED: &str =
    "It may exceed the client's limit: each key costs two signatures on an emulated CPU.";

pub const REASONS: &[Reason] = &[
    because(
        GO_CLIENTS,
        "the extension `resources`*",
        MOTE,
        "No agent has `/1.0/resources`, so mote does not list the extension.",
    ),
    because(
        GO_CLIENTS,
        "exec, death by a signal*",
        GO,
        "It is older than the rule of 128 plus the signal.",
    ),
    because(
        GO_CLIENTS,
        "exec, 2 MiB of arguments that JSON doubles*",
        MOTE,
        "mote limits a command's JSON to 3 MiB, so that it fits into 8 MiB of memory.",
    ),
    sometimes(
        GO_CLIENTS,
        "exec, 2 MiB of arguments*",
        GO,
        "It repeats them in its answer and in each event, which may take longer than the 5 s limit under emulation.",
    ),
    sometimes(
        GO_CLIENTS,
        "exec, a terminal*",
        LXD_AGENT,
        "The last output on a terminal may be lost.",
    ),
    sometimes(
        GO_CLIENTS,
        "exec, 30 commands in turn*",
        GO,
        "It sometimes refuses a socket of a command that it has just started.",
    ),
    sometimes(
        GO_CLIENTS,
        "exec, 20 commands at once*",
        GO,
        "The handshakes of 100 sockets may take longer than the 5 s limit under emulation.",
    ),
    sometimes(
        GO_CLIENTS,
        "the agent lives on*",
        GO,
        "It has crashed with a nil pointer when many commands ran at once.",
    ),
    because(&["pkg/sftp"], "modes and times*", GO, "pkg/sftp's server drops the setuid bit."),
    because(
        &["curl, as the host"],
        "exec of nothing*",
        GO,
        "It accepts the command and crashes when the sockets arrive (P§9.4).",
    ),
    because(
        &["curl, as the host"],
        "HTTP/2 is offered*",
        GO,
        "Go's server accepts HTTP/2; hosts do not offer it.",
    ),
    because(
        &["Python's websockets, as the host"],
        "the exit code, by /wait*",
        LXD_AGENT,
        "It is older than `/wait`.",
    ),
    because(
        &["Python's websockets, as the host"],
        "an exit code, by events*",
        LXD_AGENT,
        "It is older than `/wait`.",
    ),
    because(
        &["nc, typed by hand"],
        "a length and chunks*",
        LXD_AGENT,
        "Its Go ignores the length, as RFC 9112 6.1 allows; the newer one's 400 is for the empty body.",
    ),
    because(
        &["nc, typed by hand"],
        "an empty line*",
        GO,
        "Go's server skips no empty line; RFC 9112 2.2 recommends it.",
    ),
    sometimes(&["requests over unix sockets"], "60 keys*", GO, EMULATED),
    sometimes(&["node's http"], "64 keys*", GO, EMULATED),
    because(
        &["node's http"],
        "events come*",
        GO,
        "Its stream's head lines end in LF only, which node refuses.",
    ),
    because(
        &["gorilla/websocket"],
        "a length with its top bit*",
        GO,
        "gorilla's server closes the connection.",
    ),
    because(
        WEBSOCKETS,
        "a close of one byte*",
        GO,
        "gorilla's server answers with a close without a code.",
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
        "the build machine has no vhost-vsock, so the VMs use vhost-device-vsock, whose host side is unix sockets.",
    ),
    ("socat", "the harness forwards TCP to the unix socket instead."),
    (
        "pylxd as a guest's client",
        "it supports only the API of servers, so it is used with the agent's port.",
    ),
    ("busybox wget with `-T`", "busybox 1.35 crashes with any server (`Segmentation fault`)."),
    (
        "200 connections of wrk and 1,200 idle or slow ones from this machine into a VM",
        "vhost-device-vsock stalls at 200 busy connections, so wrk has 64 and the others 200; inside the VM wrk has 120 and slowhttptest 600.",
    ),
    (
        "programs inside the VMs of the Go agents",
        "an emulated Go agent needs minutes to recover from slowhttptest; they are checked from outside.",
    ),
    (
        "cloud-init 22.4 on Debian 13",
        "its adapter for unix sockets is incompatible with `requests` 2.32 of that release; it runs on Debian 12.",
    ),
    (
        "sshfs, node and Python inside the VM",
        "the image has neither FUSE tools nor interpreters; they reach the VM's agent over vsock, and devlxd through the bridge.",
    ),
    (
        "`mote-host` between a client and the agent",
        "it does not serve other clients; `tests/servers` has real servers.",
    ),
    (
        "an expired certificate",
        "mote-host's certificates are valid for years; docs/explanation/security.md describes what mote does.",
    ),
];
