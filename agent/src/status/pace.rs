//! When things are due: every period and patience of the status channel, with its reason.

use core::time::Duration;

/// Between the first tries to reach a host that has just told us where it is: it is there, so soon;
/// then ever more slowly, since it may be failing because too many call it (docs/fleet.md). Also
/// between two CONNECT lines that are followed, so that a hostile writer costs ten calls a second at
/// most.
pub const CONNECT: Duration = Duration::from_millis(100);
/// Between announcements while nobody has told us anything. The Go agents take 5 s; a restarted
/// host should not have to wait that long.
pub const STARTED: Duration = Duration::from_secs(1);
/// Between announcements while CONNECTED: hosts forget us when they restart and act on STARTED
/// only. The Go agents take 5 s, which costs a host three times as many readings of the ring. It
/// looks every 10 s by itself and finds [`REFRESH`] then; one that says CONNECT tells us when it is
/// back, and would answer each announcement (docs/fleet.md).
pub const CONNECTED: Duration = Duration::from_secs(30);
/// No interval is shorter, whatever was asked for: zero would be a busy loop.
pub const SHORTEST: Duration = Duration::from_millis(10);
/// From a line that the host is told of to STARTED in silence, while CONNECTED: it raises no event and costs
/// the host nothing, but a restarted one finds it in the ring as soon as it looks. The line itself has been
/// read by then (QEMU holds its event back for up to a second).
pub const REFRESH: Duration = Duration::from_millis(1500);
/// Between further silent ones. A host looks 10 s after the last event, and again 10 s later (P§2.3): each time the
/// ring is full again 1.5 s after it. What it reads at other times is made up for in these 5 s.
pub const REFRESHED: Duration = Duration::from_secs(5);
/// For one verification; the host gives a PUT 3 s in all (P§3.2).
pub const VERIFY: Duration = Duration::from_secs(3);
/// How long a CONNECT line is followed before we give up and announce ourselves again.
pub const CONNECT_FOR: Duration = Duration::from_secs(2);
/// Before another CONNECT line may cut short a verification under way, once one has: the abandoned
/// call still holds a socket for up to [`VERIFY`], so there are four at most.
pub const REPLACED: Duration = Duration::from_secs(1);
/// First and longest pause between own tries of an address that was lost.
pub const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Announcing for so long without being told: a host that never noticed that it lost us, or that we
/// were killed and are new, sends PUT only after STOPPED and STARTED (P§2.3).
pub const LOST: Duration = Duration::from_secs(15);
/// Between STOPPED and STARTED then, so that the host reads the one before the other: QEMU may hold
/// the event back for a second (P§2.2).
pub const READ: Duration = Duration::from_millis(1500);
/// Between two such turns: Incus shows them to its users.
pub const TURN: Duration = Duration::from_secs(30);
/// Announcements made at the `started` pace after we connected by ourselves: the host may not have
/// seen one yet.
pub(super) const UNTOLD: u8 = 10;
/// Between a line and an announcement that was brought forward (host lost, port appeared): a
/// flapping port or host must not become a flood of events at the host.
pub(super) const GAP: Duration = Duration::from_millis(200);
/// Between refused lines in the log: a hostile writer must not fill it.
pub(super) const REFUSED: Duration = Duration::from_secs(10);

/// How often to announce ourselves, and to look at the port, in each state.
#[derive(Clone, Copy, Debug)]
pub struct Intervals {
    /// See [`CONNECT`].
    pub connect: Duration,
    /// See [`STARTED`].
    pub started: Duration,
    /// See [`CONNECTED`].
    pub connected: Duration,
}

impl Default for Intervals {
    fn default() -> Self {
        Self { connect: CONNECT, started: STARTED, connected: CONNECTED }
    }
}

impl Intervals {
    /// The same, none shorter than [`SHORTEST`].
    pub(super) fn bounded(self) -> Self {
        Self {
            connect: self.connect.max(SHORTEST),
            started: self.started.max(SHORTEST),
            connected: self.connected.max(SHORTEST),
        }
    }
}
