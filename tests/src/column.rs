//! The agents that are compared, each under its server.

/// An agent, and the server it runs under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Column {
    /// mote under a current LXD.
    MoteLxd,
    LxdAgent,
    MoteIncus,
    /// The incus-agent of Debian 12's backports.
    IncusAgent,
    /// The incus-agent of Debian 13's backports, which only the bench has.
    IncusAgent7,
    /// An older build of mote under a current LXD, which only the bench has.
    Before,
}

impl Column {
    /// The compared agents, in the table's order.
    pub const ALL: [Self; 4] = [Self::MoteLxd, Self::LxdAgent, Self::MoteIncus, Self::IncusAgent];

    /// The Go agents that the bench measures.
    pub const GO: [Self; 3] = [Self::LxdAgent, Self::IncusAgent, Self::IncusAgent7];

    /// All that the bench measures: an older build of mote too.
    pub const BENCHED: [Self; 6] = [
        Self::MoteLxd,
        Self::LxdAgent,
        Self::MoteIncus,
        Self::IncusAgent,
        Self::IncusAgent7,
        Self::Before,
    ];

    /// What the bench measures: the Go agents too unless it is of mote's `own`, and an older build of mote if there is
    /// one `before`.
    pub const fn benched(own: bool, before: bool) -> &'static [Self] {
        match (own, before) {
            (false, false) => Self::BENCHED.first_chunk::<5>().expect("six"),
            (false, true) => &Self::BENCHED,
            (true, false) => &[Self::MoteLxd],
            (true, true) => &[Self::MoteLxd, Self::Before],
        }
    }

    /// On top of the column.
    pub fn title(self) -> &'static str {
        match self {
            Self::MoteLxd => "mote/lxd",
            Self::LxdAgent => "lxd-agent 5.0.2",
            Self::MoteIncus => "mote/incus",
            Self::IncusAgent => "incus-agent 6.0.4",
            Self::IncusAgent7 => "incus-agent 7.0.2",
            Self::Before => "mote/lxd before",
        }
    }

    /// Whether the server is Incus.
    pub fn is_incus(self) -> bool {
        matches!(self, Self::MoteIncus | Self::IncusAgent | Self::IncusAgent7)
    }

    pub fn is_mote(self) -> bool {
        matches!(self, Self::MoteLxd | Self::MoteIncus | Self::Before)
    }

    /// What LXD's agent does, or what Incus' does.
    pub fn pick<T>(self, lxd: T, incus: T) -> T {
        if self.is_incus() { incus } else { lxd }
    }

    /// The server `mote-host` plays.
    pub fn flavour(self) -> &'static str {
        match self {
            Self::MoteLxd | Self::Before => "lxd",
            Self::LxdAgent => "lxd-5.0",
            Self::MoteIncus | Self::IncusAgent | Self::IncusAgent7 => "incus",
        }
    }

    pub fn port(self) -> &'static str {
        match self {
            Self::MoteLxd | Self::Before => "com.canonical.lxd",
            // Debian's 5.0.2 writes to the old port, and blocks for ever on a dummy.
            Self::LxdAgent => "org.linuxcontainers.lxd",
            Self::MoteIncus | Self::IncusAgent | Self::IncusAgent7 => "org.linuxcontainers.incus",
        }
    }

    /// The program in /opt of the image, unless it is mote.
    pub fn program(self) -> Option<&'static str> {
        match self {
            Self::MoteLxd | Self::MoteIncus | Self::Before => None,
            Self::LxdAgent => Some("lxd-agent"),
            Self::IncusAgent | Self::IncusAgent7 => Some("incus-agent"),
        }
    }

    /// Where programs in the guest find devlxd.
    pub fn socket(self) -> &'static str {
        self.pick("/dev/lxd/sock", "/dev/incus/sock")
    }
}
