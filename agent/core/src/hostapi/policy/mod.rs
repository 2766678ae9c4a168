//! The capabilities that the guest allows its host, one switch each (P§1.4). Incus has seven of
//! them in `/etc/incus-agent.yml`; mote supports them with every server, and as options. Four have
//! finer limits ([`Policy`]).
//!
//! Everything is allowed unless a file or an option restricts it. Neither files nor options can
//! allow what another one denies, so their order does not matter. A file that is unreadable, or has
//! an unknown key or feature, denies everything: an author who wrote `feature:` meant to restrict
//! something. Incus' agent ignores unknown keys.

#[cfg(feature = "alloc")]
mod file;
#[cfg(feature = "alloc")]
pub mod loopholes;
#[cfg(feature = "alloc")]
mod whole;

use core::fmt::{self, Write};

#[cfg(feature = "alloc")]
pub use file::Whose;
#[cfg(feature = "alloc")]
pub use whole::{Denied, Policy};

use crate::named::named;

named! {
    /// A capability of the host in the guest, in the order of messages. Files and options name it
    /// like the features of Incus.
    pub enum Capability {
        /// The devlxd socket in the guest.
        GuestApi "guestapi",
        Exec "exec",
        /// Access to files through SFTP.
        Files "files",
        /// Mounting shared directories, at start and on hot-plug.
        Mounts "mounts",
        /// Connections to ports in the guest.
        PortForward "port-forward",
        Metrics "metrics",
        State "state",
        /// Writing the host's templates, including the host name.
        Templates "templates",
        /// Names and MTUs of NICs.
        Network "network",
        /// cloud-init's seed, and the reboot for it.
        FirstBoot "first-boot",
        /// Bringing online CPUs and memory that the host adds, and growing disks.
        Resources "resources",
        /// Stepping the guest's clock to the host's after a pause.
        Clock "clock",
        /// `poweroff`, `reboot` and `halt` as commands that mote itself answers.
        Power "power",
    }
}

impl Capability {
    const fn bit(self) -> u16 {
        1 << self as u8
    }
}

/// A resource that the host adds and the guest may ignore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Cpus,
    Memory,
    Disks,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(u16);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoCapability<'l>(pub &'l str);

impl fmt::Display for NoCapability<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("unknown feature ")?;
        quoted(out, &mut |sink| sink(self.0))?;
        known(out, &mut Capability::ALL.into_iter().map(Capability::name))
    }
}

impl Features {
    /// All capabilities: the default.
    pub const ALL: Self = Self(0x1fff);
    pub const NONE: Self = Self(0);

    /// Creates a set of the capabilities marked true.
    pub const fn of(mut list: &[(bool, Capability)]) -> Self {
        let mut all = Self::NONE;
        while let [(is_there, capability), rest @ ..] = list {
            if *is_there {
                all.0 |= capability.bit();
            }
            list = rest;
        }
        all
    }

    pub fn allows(self, capability: Capability) -> bool {
        self.0 & capability.bit() != 0
    }

    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Allows only the names in `list`, separated by commas; it may be empty.
    /// Errors: [`NoCapability`] with the first name that is unknown.
    pub fn only(list: &str) -> Result<Self, NoCapability<'_>> {
        let mut names = list.split(',').map(str::trim_ascii).filter(|name| !name.is_empty());
        names.try_fold(Self::NONE, |all, name| {
            let capability = Capability::parse(name).ok_or(NoCapability(name))?;
            Ok(Self(all.0 | capability.bit()))
        })
    }

    /// Allows everything except the names in `list`, separated by commas.
    /// Errors: [`NoCapability`] with the first name that is unknown.
    pub fn without(list: &str) -> Result<Self, NoCapability<'_>> {
        Self::only(list).map(|denied| Self(Self::ALL.0 & !denied.0))
    }
}

/// Maximum length of an untrusted text in a message, in characters.
pub(super) const SHOWN: usize = 40;

/// Passes a text, piece by piece, to the given function.
type Text<'t> = &'t mut dyn FnMut(&mut dyn FnMut(&str));

/// Writes the start of a text in quotes, with control characters replaced by `?`.
pub(super) fn quoted(out: &mut fmt::Formatter<'_>, text: Text<'_>) -> fmt::Result {
    out.write_str("\"")?;
    let (mut left, mut written) = (SHOWN, Ok(()));
    text(&mut |piece| {
        for character in piece.chars().take(left) {
            let shown = if character.is_control() { '?' } else { character };
            written = written.and_then(|()| out.write_char(shown));
            left -= 1;
        }
    });
    written?;
    out.write_str(if left == 0 { "...\"" } else { "\"" })
}

/// Writes the accepted words.
pub(super) fn known(
    out: &mut fmt::Formatter<'_>,
    words: &mut dyn Iterator<Item = &'static str>,
) -> fmt::Result {
    let mut before = "; known: ";
    for word in words {
        out.write_str(before)?;
        out.write_str(word)?;
        before = ", ";
    }
    Ok(())
}

#[cfg(test)]
mod tests;
