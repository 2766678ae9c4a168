//! Which server this guest runs under, and what follows from that (P§2.1, P§7).

/// The three kinds of server that differ for an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// Incus, all versions.
    Incus,
    /// LXD 5.20 and later, and 5.21 LTS.
    Lxd,
    /// LXD up to 5.19, and 5.0 LTS.
    LxdOld,
}

/// The names of the status port, in the order to look for them: current servers keep the last one
/// as a dummy that must not be written to (P§2.1).
pub const PORT_NAMES: [(&str, Flavour); 3] = [
    ("org.linuxcontainers.incus", Flavour::Incus),
    ("com.canonical.lxd", Flavour::Lxd),
    (LEGACY_PORT, Flavour::LxdOld),
];

/// The old name; a dummy beside either of the others.
pub const LEGACY_PORT: &str = "org.linuxcontainers.lxd";

impl Flavour {
    /// As `--flavour` takes it.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Incus, Self::Lxd, Self::LxdOld].into_iter().find(|flavour| flavour.name() == name)
    }

    /// As `--flavour` takes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Incus => "incus",
            Self::Lxd => "lxd",
            Self::LxdOld => "lxd-5.0",
        }
    }

    /// `environment.server`: how the host's client recognises its agent (P§3.4).
    #[must_use]
    pub fn server_name(self) -> &'static str {
        match self {
            Self::Incus => "incus-agent",
            Self::Lxd | Self::LxdOld => "lxd-agent",
        }
    }

    /// Where guests find the API (P§5.1).
    #[must_use]
    pub fn socket_path(self) -> &'static str {
        match self {
            Self::Incus => "/dev/incus/sock",
            Self::Lxd | Self::LxdOld => "/dev/lxd/sock",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for flavour in [Flavour::Incus, Flavour::Lxd, Flavour::LxdOld] {
            assert_eq!(Flavour::parse(flavour.name()), Some(flavour));
        }
        assert_eq!(Flavour::parse("docker"), None);
    }
}
