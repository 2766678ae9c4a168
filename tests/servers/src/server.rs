//! The servers, and where their command lines differ.

/// A server, as Debian packages it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// Incus 7.0.2 of Debian 13's backports.
    Incus,
    /// Incus 6.0.4 of Debian 13.
    Incus60,
    /// LXD 5.0.2 of Debian 12.
    Lxd,
}

impl Server {
    /// All, in the page's order.
    pub const ALL: [Self; 3] = [Self::Incus, Self::Incus60, Self::Lxd];

    /// Returns the server with this [name](Self::name).
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|server| server.name() == name)
    }

    /// Returns its name on the command line of `scripts/real-server` and in the record.
    pub fn name(self) -> &'static str {
        match self {
            Self::Incus => "incus",
            Self::Incus60 => "incus-6.0",
            Self::Lxd => "lxd",
        }
    }

    /// Whether it is any Incus.
    pub fn is_incus(self) -> bool {
        self != Self::Lxd
    }

    fn either(self, incus: &'static str, lxd: &'static str) -> &'static str {
        if self.is_incus() { incus } else { lxd }
    }

    /// Returns the name of its service, which headers and metrics have, too.
    pub fn service(self) -> &'static str {
        self.either("incus", "lxd")
    }

    /// As people write it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Incus => "Incus 7.0.2 (Debian 13, backports)",
            Self::Incus60 => "Incus 6.0.4 (Debian 13)",
            Self::Lxd => "LXD 5.0.2 (Debian 12)",
        }
    }

    /// What of it is installed, for its version.
    pub fn package(self) -> &'static str {
        self.either("incus-base", "lxd")
    }

    pub fn own_agent(self) -> &'static str {
        self.either("incus-agent", "lxd-agent")
    }

    pub fn cli(self) -> &'static str {
        self.either("incus", "lxc")
    }

    pub fn socket(self) -> &'static str {
        self.either("/var/lib/incus/unix.socket", "/var/lib/lxd/unix.socket")
    }

    /// The socket of programs in the guest.
    pub fn guest_socket(self) -> &'static str {
        self.either("/dev/incus/sock", "/dev/lxd/sock")
    }

    /// The key that switches it off.
    pub fn guest_api(self) -> &'static str {
        self.either("security.guestapi", "security.devlxd")
    }

    /// The command and its first word that makes a snapshot, and the one that deletes it.
    pub fn snapshot(self, instance: &str, name: &str) -> [Vec<String>; 2] {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        match self {
            Self::Incus | Self::Incus60 => [
                words(&["snapshot", "create", instance, name]),
                words(&["snapshot", "delete", instance, name]),
            ],
            Self::Lxd => [
                words(&["snapshot", instance, name]),
                words(&["delete", &format!("{instance}/{name}")]),
            ],
        }
    }

    /// Whether a directory can be added to an instance that runs: 5.0.2 says `Cannot attach directory while
    /// instance is running`.
    pub fn plugs_directories(self) -> bool {
        self.is_incus()
    }

    /// Whether it has the status Ready: since LXD 5.5 (`instance_ready_state`).
    pub fn has_ready(self) -> bool {
        self.is_incus()
    }

    /// What lets a paused instance run again.
    pub fn resume(self) -> &'static str {
        self.either("resume", "start")
    }
}

/// Whose agent is in the instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agent {
    Mote,
    /// The server's own, from its config share.
    Own,
}

impl Agent {
    /// Both, as the table has them.
    pub const ALL: [Self; 2] = [Self::Mote, Self::Own];

    /// By the name that the command line gives it; also the name of its image.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|agent| agent.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Mote => "mote",
            Self::Own => "own",
        }
    }

    /// The same as a column's title.
    pub fn title(self, server: Server) -> &'static str {
        match self {
            Self::Mote => "mote",
            Self::Own => server.own_agent(),
        }
    }
}
