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

    /// Returns title, server as `mote-host` names it, and program below /opt in the image; `None` for
    /// mote.
    const fn about(self) -> (&'static str, &'static str, Option<&'static str>) {
        match self {
            Self::MoteLxd => ("mote/lxd", "lxd", None),
            Self::LxdAgent => ("lxd-agent 5.0.2", "lxd-5.0", Some("lxd-agent")),
            Self::MoteIncus => ("mote/incus", "incus", None),
            Self::IncusAgent => ("incus-agent 6.0.4", "incus", Some("incus-agent")),
            Self::IncusAgent7 => ("incus-agent 7.0.2", "incus", Some("incus-agent")),
            Self::Before => ("mote/lxd before", "lxd", None),
            Self::MoteOldLxd => ("mote/lxd-5.0", "lxd-5.0", None),
        }
    }

    pub fn title(self) -> &'static str {
        self.about().0
    }

    pub fn flavour(self) -> &'static str {
        self.about().1
    }

    pub fn program(self) -> Option<&'static str> {
        self.about().2
    }

    pub fn is_incus(self) -> bool {
        self.flavour() == "incus"
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

    pub fn port(self) -> &'static str {
        match self.flavour() {
            "lxd" => "com.canonical.lxd",
            "incus" => "org.linuxcontainers.incus",
            // Debian's 5.0.2 writes to the old port, and a dummy port blocks it forever.
            _ => "org.linuxcontainers.lxd",
        }
    }

    pub fn socket(self) -> &'static str {
        self.pick("/dev/lxd/sock", "/dev/incus/sock")
    }
}
