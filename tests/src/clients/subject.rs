//! The agents that the clients are tested with.

use crate::column::Column;

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
