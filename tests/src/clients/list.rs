//! The list of clients.

use super::{Played, Subject};

#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// Heading of its cases.
    pub heading: &'static str,
    /// Description and origin, shown under the heading.
    pub about: &'static str,
    /// Command that uses it: a program under `tests/clients`, or built from there.
    pub program: &'static [&'static str],
    /// Environment in which it runs.
    pub place: Place,
    /// Usual time on mote, seconds on 2 cores; it is killed after ten times this and three minutes.
    pub seconds: u64,
    /// Further commands or built files that it needs.
    pub needs: &'static [&'static str],
    /// Limits it to agents of Incus (true) or LXD (false).
    pub incus: Option<bool>,
}

/// Environment in which a client runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// As in the guest: with devlxd in its usual path.
    Guest,
    /// As on the host: it calls the agent.
    Host,
    /// In mote's VM itself, whose image has the program.
    Inside,
}

impl Client {
    const fn new(
        heading: &'static str,
        about: &'static str,
        program: &'static [&'static str],
        place: Place,
        seconds: u64,
    ) -> Self {
        Self { heading, about, program, place, seconds, needs: &[], incus: None }
    }

    const fn needs(mut self, needs: &'static [&'static str]) -> Self {
        self.needs = needs;
        self
    }

    const fn of(mut self, incus: bool) -> Self {
        self.incus = Some(incus);
        self
    }

    /// True if the client is to be run on this agent. Calls to the agent's port are the same for
    /// every version of LXD, so they are made for one only.
    pub fn speaks_to(&self, subject: Subject) -> bool {
        let incus = match subject {
            Subject::Sockets(played) => played == Played::Incus,
            Subject::Booted(column) => column.is_incus(),
        };
        let here = match self.place {
            Guest => true,
            Host => subject != Subject::Sockets(Played::OldLxd),
            Inside => matches!(subject, Subject::Booted(column) if column.is_mote()),
        };
        self.incus.is_none_or(|wanted| wanted == incus) && here
    }
}

use Place::{Guest, Host, Inside};

/// All clients in the page's order.
pub const CLIENTS: &[Client] = &[
    Client::new(
        "Incus' Go client",
        "`github.com/lxc/incus/v7/client` 7.0.2 over the HTTP client that incusd uses for a VM \
         (Debian: `golang-github-lxc-incus-v7-dev`).",
        &["built", "incus"],
        Host,
        20,
    )
    .of(true),
    Client::new(
        "LXD's Go client",
        "`github.com/lxc/lxd/client` 5.0.2, the same program (Debian: the source of `lxd`).",
        &["built", "lxd"],
        Host,
        20,
    )
    .of(false),
    Client::new(
        "pkg/sftp",
        "The SFTP library of both servers and their command lines (Debian: `golang-github-pkg-sftp-dev`).",
        &["built", "sftp"],
        Host,
        4,
    ),
    Client::new(
        "OpenSSH's sftp",
        "`sftp -D` on the agent's stream (Debian: `openssh-client`).",
        &["bash", "shell/openssh-sftp"],
        Host,
        2,
    )
    .needs(&["sftp", "pipe"]),
    Client::new(
        "sshfs",
        "`sshfs -o passive` on the agent's stream, as `incus file mount` uses it (Debian: `sshfs`).",
        &["bash", "shell/sshfs"],
        Host,
        2,
    )
    .needs(&["sshfs", "sftp", "git", "pipe"]),
    Client::new(
        "openssl s_client",
        "Manual mutual TLS (Debian: `openssl`).",
        &["bash", "shell/openssl"],
        Host,
        7,
    )
    .needs(&["openssl", "nc"]),
    Client::new(
        "curl, as the host",
        "HTTP over mutual TLS (Debian: `curl`).",
        &["bash", "shell/curl-host"],
        Host,
        1,
    )
    .needs(&["curl"]),
    Client::new(
        "Python's websockets, as the host",
        "Exec's sockets and events over TLS (PyPI: `websockets` 15.0.1).",
        &["venv", "python/exec_sockets.py"],
        Host,
        3,
    ),
    Client::new(
        "pylxd",
        "With the agent instead of a server, over forwarded TCP (PyPI: `pylxd` 2.4.2).",
        &["venv", "python/with_pylxd.py"],
        Host,
        2,
    ),
    Client::new(
        "inside the VM",
        "curl, `nc`, busybox wget and the servers' devlxd test clients in the VM itself, on its own socket, without a bridge.",
        &["inside", "shell/inside"],
        Inside,
        60,
    )
    .needs(&["bridge", "curl", "nc.openbsd", "wrk", "slowhttptest"]),
    Client::new(
        "cloud-init 22.4",
        "Its LXD data source (Debian 12: `cloud-init`).",
        &["python", "python/cloud_init.py", "cloud-init-22.4"],
        Guest,
        1,
    )
    .needs(&["cloud-init-22.4"]),
    Client::new(
        "cloud-init 26.2",
        "Its LXD data source (Debian sid: `cloud-init`).",
        &["python", "python/cloud_init.py", "cloud-init-26.2"],
        Guest,
        1,
    )
    .needs(&["cloud-init-26.2"]),
    Client::new(
        "LXD's devlxd test client",
        "`test/devlxd-client` 5.0.2, unchanged (Debian: the source of `lxd`).",
        &["bash", "shell/devlxd-client", "lxd-devlxd-client"],
        Guest,
        4,
    )
    .needs(&["lxd-devlxd-client"]),
    Client::new(
        "Incus' devlxd test client",
        "`test/dev_incus-client` 7.0.2, unchanged (Debian: `golang-github-lxc-incus-v7-dev`).",
        &["bash", "shell/devlxd-client", "incus-devlxd-client"],
        Guest,
        4,
    )
    .needs(&["incus-devlxd-client"])
    .of(true),
    Client::new(
        "curl, in the guest",
        "`--unix-socket` (Debian: `curl`).",
        &["bash", "shell/curl-guest"],
        Guest,
        5,
    )
    .needs(&["curl"]),
    Client::new(
        "nc, typed by hand",
        "Requests as a user types them (Debian: `netcat-openbsd`).",
        &["bash", "shell/nc"],
        Guest,
        4,
    )
    .needs(&["nc"]),
    Client::new(
        "wget and busybox wget",
        "Over TCP forwarded to the socket (Debian: `wget`, `busybox-static`).",
        &["bash", "shell/wget"],
        Guest,
        1,
    )
    .needs(&["wget", "busybox"]),
    Client::new(
        "requests over unix sockets",
        "PyPI: `requests-unixsocket` 0.4.1.",
        &["venv", "python/unixsocket.py"],
        Guest,
        1,
    ),
    Client::new(
        "node's http",
        "`socketPath`, with keep-alive (Debian: `nodejs`).",
        &["node", "node/http.js"],
        Guest,
        5,
    ),
    Client::new(
        "gorilla/websocket",
        "Go (Debian: `golang-github-gorilla-websocket-dev`).",
        &["built", "gorilla"],
        Guest,
        1,
    ),
    Client::new(
        "Python's websockets",
        "PyPI: `websockets` 15.0.1.",
        &["venv", "python/events.py"],
        Guest,
        1,
    ),
    Client::new("node's ws", "Debian: `node-ws`.", &["node", "node/events.js"], Guest, 1)
        .needs(&["/usr/share/nodejs/ws"]),
    Client::new(
        "ab",
        "Apache's, over TCP forwarded to the socket (Debian: `apache2-utils`).",
        &["bash", "shell/ab"],
        Guest,
        1,
    )
    .needs(&["ab"]),
    Client::new(
        "wrk",
        "Over TCP forwarded to the socket (Debian: `wrk`).",
        &["bash", "shell/wrk"],
        Guest,
        6,
    )
    .needs(&["wrk"]),
    Client::new(
        "many idle clients",
        "1,200 connections by node (200 in a VM) that are idle after an answer, silent, or incomplete.",
        &["node", "node/crowd.js"],
        Guest,
        6,
    ),
    Client::new(
        "slowhttptest",
        "1,200 connections (200 in a VM) with slow heads or bodies, 200 slow readers (Debian: `slowhttptest`).",
        &["bash", "shell/slowhttptest"],
        Guest,
        19,
    )
    .needs(&["slowhttptest", "curl"]),
];
