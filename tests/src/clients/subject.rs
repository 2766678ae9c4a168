//! The agents that clients are used on.

use crate::column::Column;

/// An agent, and where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// mote on this machine, its vsock being unix sockets.
    Sockets(Played),
    /// An agent in a VM.
    Booted(Column),
}

/// The host that mote has on sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Played {
    Lxd,
    /// LXD 5.0, as Debian 12 has it.
    OldLxd,
    Incus,
}

impl Subject {
    /// The page's columns; mote in a VM has to show what it shows on sockets.
    pub const COLUMNS: [Self; 5] = [
        Self::Sockets(Played::Lxd),
        Self::Sockets(Played::OldLxd),
        Self::Booted(Column::LxdAgent),
        Self::Sockets(Played::Incus),
        Self::Booted(Column::IncusAgent),
    ];
    /// mote without a VM.
    pub const ON_SOCKETS: [Self; 3] =
        [Self::Sockets(Played::Lxd), Self::Sockets(Played::OldLxd), Self::Sockets(Played::Incus)];

    /// On top of its column; that of mote on sockets for mote in a VM.
    pub fn title(self) -> &'static str {
        match self {
            Self::Sockets(Played::Lxd) => "mote/lxd",
            Self::Sockets(Played::OldLxd) => "mote/lxd-5.0",
            Self::Sockets(Played::Incus) => "mote/incus",
            Self::Booted(column) => column.title(),
        }
    }

    /// The host that it has.
    pub fn flavour(self) -> &'static str {
        match self {
            Self::Sockets(Played::Lxd) => "lxd",
            Self::Sockets(Played::OldLxd) => "lxd-5.0",
            Self::Sockets(Played::Incus) => "incus",
            Self::Booted(column) => column.flavour(),
        }
    }

    /// What it is called in what is printed.
    pub fn name(self) -> String {
        match self {
            Self::Sockets(_) => format!("{} on sockets", self.title()),
            Self::Booted(_) => format!("{} in a VM", self.title()),
        }
    }
}
