//! The list of clients.

use crate::prelude::*;

use Place::{Guest, Host, Inside, Machine};

#[derive(Clone, Copy, Debug)]
pub struct Client {
    pub heading: &'static str,
    /// Description and origin, shown under the heading.
    pub about: &'static str,
    /// Command that runs the client: a program in `tests/clients`, or one built from there.
    pub program: &'static [&'static str],
    pub place: Place,
    /// Usual seconds on mote with 2 cores; the command is killed after ten times this plus 3 min.
    pub seconds: u64,
    /// Further commands or built files that the client needs.
    pub needs: &'static [&'static str],
    /// Whether the client is limited to agents of Incus (true) or LXD (false).
    pub incus: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The client runs on this machine, with devlxd at its usual path, as in the guest.
    Guest,
    Host,
    /// The client runs as on the host, and its peer on this machine, too: only without a VM.
    Machine,
    /// The client runs inside mote's VM, whose image contains the program.
    Inside,
}

impl Client {
    /// Reads a line of the list. Leaks the words, because the list is read only once.
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
    /// every version of LXD, so such a client runs for only one version.
    pub fn speaks_to(&self, subject: Subject) -> bool {
        let is_old = subject.column == Column::MoteOldLxd;
        let here = match self.place {
            Guest => true,
            Host => !is_old,
            Machine => !subject.in_vm && !is_old,
            Inside => subject.in_vm && subject.column.is_mote(),
        };
        self.incus.is_none_or(|wanted| wanted == subject.column.is_incus()) && here
    }
}

pub static CLIENTS: LazyLock<Vec<Client>> = LazyLock::new(|| {
    let lines = include_str!("list.txt").lines().filter(|line| !line.starts_with('#'));
    lines.map(Client::parse).collect()
});

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    pub column: Column,
    /// Whether the agent runs in a VM, or else on this machine, with unix sockets instead of vsock.
    pub in_vm: bool,
}

impl Subject {
    /// The page's columns. mote in a VM must have the same results as on sockets.
    pub const COLUMNS: [Self; 5] = [
        Self::on_sockets(Column::MoteLxd),
        Self::on_sockets(Column::MoteOldLxd),
        Self::booted(Column::LxdAgent),
        Self::on_sockets(Column::MoteIncus),
        Self::booted(Column::IncusAgent),
    ];

    pub const fn on_sockets(column: Column) -> Self {
        Self { column, in_vm: false }
    }

    pub const fn booted(column: Column) -> Self {
        Self { column, in_vm: true }
    }

    pub fn name(self) -> String {
        format!("{} {}", self.column.title(), if self.in_vm { "in a VM" } else { "on sockets" })
    }
}
