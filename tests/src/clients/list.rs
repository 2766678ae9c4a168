//! The list of clients.

use std::sync::LazyLock;

use Place::{Guest, Host, Inside, Machine};

use crate::Column;

#[derive(Clone, Copy, Debug)]
pub struct Client {
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
    /// As on the host, with its other half on this machine: only without a VM.
    Machine,
    /// In mote's VM itself, whose image has the program.
    Inside,
}

impl Client {
    /// Reads a line of the list. Words are leaked: the list is read once.
    fn parse(line: &'static str) -> Self {
        let words = |text: &'static str| -> &'static [&'static str] {
            text.split(' ').filter(|word| *word != "-").collect::<Vec<_>>().leak()
        };
        let fields: Vec<_> = line.split(" | ").collect();
        let [heading, place, seconds, program, needs, server, about] = fields[..] else {
            panic!("not a client: {line}")
        };
        let place = match place {
            "Guest" => Guest,
            "Host" => Host,
            "Machine" => Machine,
            "Inside" => Inside,
            other => panic!("no place {other}"),
        };
        let seconds = seconds.parse().expect("seconds");
        let incus = (server != "both").then_some(server == "Incus");
        Self { heading, about, program: words(program), place, seconds, needs: words(needs), incus }
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
            Machine => matches!(subject, Subject::Sockets(Played::Lxd | Played::Incus)),
            Inside => matches!(subject, Subject::Booted(column) if column.is_mote()),
        };
        self.incus.is_none_or(|wanted| wanted == incus) && here
    }
}

/// All clients in the page's order.
pub static CLIENTS: LazyLock<Vec<Client>> = LazyLock::new(|| {
    let lines = include_str!("list.txt").lines().filter(|line| !line.starts_with('#'));
    lines.map(Client::parse).collect()
});

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// mote on this machine, with unix sockets as its vsock.
    Sockets(Played),
    Booted(Column),
}

/// The host of mote on sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Played {
    Lxd,
    /// LXD 5.0 of Debian 12.
    OldLxd,
    Incus,
}

impl Subject {
    /// The page's columns. mote in a VM must have the same results as on sockets.
    pub const COLUMNS: [Self; 5] = [
        Self::Sockets(Played::Lxd),
        Self::Sockets(Played::OldLxd),
        Self::Booted(Column::LxdAgent),
        Self::Sockets(Played::Incus),
        Self::Booted(Column::IncusAgent),
    ];
    pub const ON_SOCKETS: [Self; 3] =
        [Self::Sockets(Played::Lxd), Self::Sockets(Played::OldLxd), Self::Sockets(Played::Incus)];

    /// Returns the column's title, which mote in a VM shares with mote on sockets.
    pub fn title(self) -> &'static str {
        match self {
            Self::Sockets(Played::Lxd) => "mote/lxd",
            Self::Sockets(Played::OldLxd) => "mote/lxd-5.0",
            Self::Sockets(Played::Incus) => "mote/incus",
            Self::Booted(column) => column.title(),
        }
    }

    pub fn flavour(self) -> &'static str {
        match self {
            Self::Sockets(Played::Lxd) => "lxd",
            Self::Sockets(Played::OldLxd) => "lxd-5.0",
            Self::Sockets(Played::Incus) => "incus",
            Self::Booted(column) => column.flavour(),
        }
    }

    pub fn name(self) -> String {
        match self {
            Self::Sockets(_) => format!("{} on sockets", self.title()),
            Self::Booted(_) => format!("{} in a VM", self.title()),
        }
    }
}
