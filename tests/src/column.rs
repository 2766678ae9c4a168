//! The compared agents, each with its server.

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Column {
    /// mote with a current LXD.
    MoteLxd,
    LxdAgent,
    MoteIncus,
    IncusAgent,
    /// The incus-agent of Debian 13's backports, which only the bench has.
    IncusAgent7,
    /// An older build of mote with a current LXD, for the bench only.
    Before,
    /// mote with LXD 5.0 of Debian 12, for the clients only.
    MoteOldLxd,
}

impl Column {
    /// The compared agents, in the table's order.
    pub const ALL: [Self; 4] = [Self::MoteLxd, Self::LxdAgent, Self::MoteIncus, Self::IncusAgent];

    /// The Go agents that the bench measures.
    pub const GO: [Self; 3] = [Self::LxdAgent, Self::IncusAgent, Self::IncusAgent7];

    pub const BENCHED: [Self; 6] = [
        Self::MoteLxd,
        Self::LxdAgent,
        Self::MoteIncus,
        Self::IncusAgent,
        Self::IncusAgent7,
        Self::Before,
    ];

    /// Returns the agents of a bench: with the Go agents unless only mote's `own` rows are wanted,
    /// and with the older build if `before`.
    pub const fn benched(own: bool, before: bool) -> &'static [Self] {
        match (own, before) {
            (false, false) => Self::BENCHED.first_chunk::<5>().expect("six"),
            (false, true) => &Self::BENCHED,
            (true, false) => &[Self::MoteLxd],
            (true, true) => &[Self::MoteLxd, Self::Before],
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::MoteLxd => "mote/lxd",
            Self::LxdAgent => "lxd-agent 5.0.2",
            Self::MoteIncus => "mote/incus",
            Self::IncusAgent => "incus-agent 6.0.4",
            Self::IncusAgent7 => "incus-agent 7.0.2",
            Self::Before => "mote/lxd before",
            Self::MoteOldLxd => "mote/lxd-5.0",
        }
    }

    pub fn is_incus(self) -> bool {
        matches!(self, Self::MoteIncus | Self::IncusAgent | Self::IncusAgent7)
    }

    pub fn is_mote(self) -> bool {
        self.program().is_none()
    }

    /// Whether its host is a current LXD.
    pub fn is_current_lxd(self) -> bool {
        self.flavour() == "lxd"
    }

    /// Returns the value for its server.
    pub fn pick<T>(self, lxd: T, incus: T) -> T {
        if self.is_incus() { incus } else { lxd }
    }

    /// Returns the server that `mote-host` plays.
    pub fn flavour(self) -> &'static str {
        match self {
            Self::MoteLxd | Self::Before => "lxd",
            Self::LxdAgent | Self::MoteOldLxd => "lxd-5.0",
            Self::MoteIncus | Self::IncusAgent | Self::IncusAgent7 => "incus",
        }
    }

    pub fn port(self) -> &'static str {
        match self {
            Self::MoteLxd | Self::Before => "com.canonical.lxd",
            // Debian's 5.0.2 writes to the old port, and a dummy port blocks it forever.
            Self::LxdAgent | Self::MoteOldLxd => "org.linuxcontainers.lxd",
            Self::MoteIncus | Self::IncusAgent | Self::IncusAgent7 => "org.linuxcontainers.incus",
        }
    }

    /// Returns its path below /opt in the image; `None` for mote.
    pub fn program(self) -> Option<&'static str> {
        match self {
            Self::MoteLxd | Self::MoteOldLxd | Self::MoteIncus | Self::Before => None,
            Self::LxdAgent => Some("lxd-agent"),
            Self::IncusAgent | Self::IncusAgent7 => Some("incus-agent"),
        }
    }

    pub fn socket(self) -> &'static str {
        self.pick("/dev/lxd/sock", "/dev/incus/sock")
    }
}
