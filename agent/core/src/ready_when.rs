//! Conditions under which the agent reports Ready by itself: `ready-when` in the guest's policy.

use crate::decimal::digits;
use crate::guest_path::Target;
use crate::report::proc::words;

/// The kernel's state for a listening TCP socket (`include/net/tcp_states.h`).
const LISTENS: &[u8] = b"0A";
/// Maximum length of a unix socket's path, in bytes (unix(7), `sun_path` without the NUL).
const SOCKET: usize = 107;
/// Required consecutive checks that see no init script, since none runs between runlevels.
const CALM: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition<'t> {
    /// The init system has started everything.
    Init,
    CloudInit,
    Port(u16),
    Socket(&'t str),
    /// This command ends with exit code 0. Spaces separate its words.
    Command(&'t str),
}

impl<'t> Condition<'t> {
    /// Parses an item of the list, such as `port 80`.
    pub fn parse(text: &'t str) -> Option<Self> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let is_path = rest.starts_with('/') && !rest.contains(char::is_control);
        match (word, rest) {
            ("init", "") => Some(Self::Init),
            ("cloud-init", "") => Some(Self::CloudInit),
            ("port", _) if is_path => {
                Target::absolute(rest).filter(|_| rest.len() <= SOCKET).map(|_| Self::Socket(rest))
            }
            ("port", _) => digits(rest).filter(|port| *port > 0).map(Self::Port),
            ("command", _) if is_path => Some(Self::Command(rest)),
            _ => None,
        }
    }
}

/// Returns whether a line of `/proc/net/tcp` or `tcp6` is a socket that listens on this port. The
/// line has a number, the local address, the peer's address and the state.
pub fn listens(line: &[u8], port: u16) -> bool {
    let mut words = words(line);
    let (address, state) = (words.nth(1), words.nth(1));
    let at = address.and_then(|address| address.rsplit(|byte| *byte == b':').next());
    let at = at.and_then(|at| core::str::from_utf8(at).ok());
    state == Some(LISTENS) && at.and_then(|at| u16::from_str_radix(at, 16).ok()) == Some(port)
}

/// Decides whether an init system that does not report its state is done: consecutive checks see
/// none of its scripts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Calm(u8);

impl Calm {
    /// Counts one check; returns whether init is done.
    pub fn is_done(&mut self, runs: bool) -> bool {
        self.0 = if runs { 0 } else { self.0.saturating_add(1) };
        self.0 >= CALM
    }
}

/// Returns whether a process with this name starts services at boot: scripts of sysvinit and
/// busybox, and startpar.
pub fn starts_services(name: &str) -> bool {
    matches!(name, "rc" | "rcS" | "startpar")
}

/// Returns whether OpenRC is done, from its `softlevel` and whether it `starts` services.
pub fn is_default_level(softlevel: &str, starts: bool) -> bool {
    !starts && !matches!(softlevel.trim_ascii(), "" | "sysinit" | "boot")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_malformed_conditions() {
        for (text, wanted) in [
            ("init", Condition::Init),
            ("cloud-init", Condition::CloudInit),
            ("port 80", Condition::Port(80)),
            ("port /run/x y.sock", Condition::Socket("/run/x y.sock")),
            ("command /bin/check -q", Condition::Command("/bin/check -q")),
        ] {
            assert_eq!(Condition::parse(text), Some(wanted), "{text}");
        }
        let all = "; Init; init x; port; port 0; port 65536; port x; port +80; port /a/../b; \
             command check; command /a\nb";
        for text in all.split("; ") {
            assert_eq!(Condition::parse(text), None, "{text}");
        }
        let long = format!("port /{}", "x".repeat(SOCKET));
        assert_eq!(Condition::parse(&long), None);
        assert!(Condition::parse(long.split_at(SOCKET + 5).0).is_some());
    }

    #[test]
    fn recognises_listening_sockets() {
        let tcp = "   0: 0100007F:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1 0";
        let tcp6 = "   1: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000";
        assert!(listens(tcp.as_bytes(), 80) && listens(tcp6.as_bytes(), 8080));
        assert!(!listens(tcp.as_bytes(), 8080));
        assert!(!listens(tcp.replace(" 0A ", " 01 ").as_bytes(), 80));
        assert!(!listens(b"  sl  local_address rem_address   st", 80) && !listens(b"", 80));
    }

    #[test]
    fn a_gap_between_runlevels_does_not_complete_the_boot() {
        let mut calm = Calm::default();
        let looks = [true, false, true, true, false, false];
        assert_eq!(looks.map(|runs| calm.is_done(runs)), [false, false, false, false, false, true]);
        assert!(starts_services("startpar") && !starts_services("rcu_sched"));
        let levels = [
            ("sysinit\n", false),
            ("boot", false),
            ("default\n", true),
            ("default\n", false),
            ("", false),
        ];
        assert_eq!(
            levels.map(|(level, starts)| is_default_level(level, starts)),
            [false, false, false, true, false]
        );
    }
}
