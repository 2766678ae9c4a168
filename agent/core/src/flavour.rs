//! The kinds of servers, and what depends on them (P§2.1, P§7).

use crate::named::named;

named! {
    /// The three kinds of server that an agent must distinguish, by the values of `--flavour`.
    pub enum Flavour {
        Incus "incus",
        /// LXD 5.20 and later, and 5.21 LTS.
        Lxd "lxd",
        /// LXD up to 5.19, and 5.0 LTS.
        LxdOld "lxd-5.0",
    }
}

/// Names of the status port in search order. Current servers keep the last one as a dummy that must
/// not be written to (P§2.1).
pub const PORT_NAMES: [(&str, Flavour); 3] = [
    ("org.linuxcontainers.incus", Flavour::Incus),
    ("com.canonical.lxd", Flavour::Lxd),
    (LEGACY_PORT, Flavour::LxdOld),
];

/// Status port of old LXD; a dummy if another one exists.
pub const LEGACY_PORT: &str = "org.linuxcontainers.lxd";

/// Maximum length of the differing part of a misspelled name, in bytes.
const SLIP: usize = 3;

/// Returns the current server's port that `name` seems to misspell: it differs in one part.
/// Otherwise the agent would use the dummy port, which no host reads.
pub fn misspelt(name: &str) -> Option<&'static str> {
    let names = PORT_NAMES.iter().map(|(meant, _)| *meant).filter(|meant| *meant != LEGACY_PORT);
    names.into_iter().find(|meant| {
        let longer = name.len().max(meant.len());
        let alike = |pairs: &mut dyn Iterator<Item = (u8, u8)>| {
            pairs.take_while(|(one, other)| one == other).count()
        };
        let front = alike(&mut name.bytes().zip(meant.bytes()));
        let back = alike(&mut name.bytes().rev().zip(meant.bytes().rev()));
        name != *meant && name != LEGACY_PORT && front + back + SLIP >= longer
    })
}

impl Flavour {
    /// Returns `environment.server`, by which the host's client recognises its agent (P§3.4).
    pub fn server_name(self) -> &'static str {
        match self {
            Self::Incus => "incus-agent",
            Self::Lxd | Self::LxdOld => "lxd-agent",
        }
    }

    /// Returns the path of the API's socket in the guest (P§5.1).
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
    fn detects_misspelt_port_names_and_ignores_other_ports() {
        let (incus, lxd) = ("org.linuxcontainers.incus", "com.canonical.lxd");
        let like_lxd = "com.canonical.lxdd com.canonical.lx com.canonical.lxc com.cannonical.lxd \
                        com.canoncial.lxd org.canonical.lxd com.canonical.lxd.0";
        let like_incus = "org.linuxcontainers.inucs org.linuxcontainer.incus";
        let others = "org.linuxcontainers.lxd com.canonical.lxd org.linuxcontainers.incus \
                      org.qemu.guest_agent.0 com.redhat.spice.0 org.spice-space.webdav.0 com.canonical ";
        for (names, meant) in [(like_lxd, Some(lxd)), (like_incus, Some(incus)), (others, None)] {
            for name in names.split(' ') {
                assert_eq!(misspelt(name), meant, "{name}");
            }
        }
    }
}
