//! Timing of the status channel: every period and deadline with its reason.

use core::time::Duration;

/// Pause before the first retry of a host that has just given its address: short, since it is there. Later
/// pauses grow, since it may be failing under the calls of too many guests. Also the pause
/// between two CONNECT lines that are followed, so that a hostile writer causes at most ten calls a second.
pub const CONNECT: Duration = Duration::from_millis(100);
/// Between announcements in STARTED. The Go agents take 5 s; a restarted host should not have to wait that
/// long.
pub const STARTED: Duration = Duration::from_secs(1);
/// Between announcements in CONNECTED: a host forgets its agents when it restarts, and acts on STARTED only.
/// The Go agents take 5 s, with which a host reads the ring three times as often. A host that uses PUT reads
/// the ring every 10 s by itself and finds the [`REFRESH`] there. A host that uses CONNECT sends it again
/// after a restart, and would answer each announcement.
pub const CONNECTED: Duration = Duration::from_secs(30);
/// Shortest interval that an option can set: zero would be a busy loop.
pub const SHORTEST: Duration = Duration::from_millis(10);
/// In CONNECTED, from a visible line to the silent STARTED that refreshes the ring. The silent line raises no
/// event, so it costs the host nothing, but a restarted host finds it at its first look into the ring. By then
/// the visible line has been read: QEMU holds its event back for up to a second.
pub const REFRESH: Duration = Duration::from_millis(1500);
/// Between further silent STARTED lines. A host reads the ring 10 s after the last event and every 10 s from
/// then on (P§2.3); a line follows 1.5 s after each of these. After a read at any other time the ring is full
/// again within 5 s.
pub const REFRESHED: Duration = Duration::from_secs(5);
/// Deadline of one verification: the host waits 3 s for the answer to its PUT (P§3.2).
pub const VERIFY: Duration = Duration::from_secs(3);
/// Total time of the tries for one CONNECT line; then announcements begin again.
pub const CONNECT_DEADLINE: Duration = Duration::from_secs(2);
/// After a CONNECT line that replaced a running verification, until the next line is followed. An abandoned
/// call holds a socket for up to [`VERIFY`], so there are at most four of them.
pub const REPLACED_PAUSE: Duration = Duration::from_secs(1);
/// First pause between the agent's own verifications of the known address; it doubles up to [`VERIFY_BACKOFF_MAX`].
pub const VERIFY_BACKOFF_MIN: Duration = Duration::from_secs(1);
/// Longest pause between them.
pub const VERIFY_BACKOFF_MAX: Duration = Duration::from_secs(30);
/// From STARTED without an answer to STOPPED and STARTED again. A host that did not notice that the agent was
/// lost, or was killed and started anew, sends PUT only after these two (P§2.3).
pub const NO_CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// Between that STOPPED and STARTED, so that the host reads both: QEMU may hold an event back for a second
/// (P§2.2).
pub const STOPPED_TO_STARTED: Duration = Duration::from_millis(1500);
/// Between two such restarts of the announcement: Incus shows them to its users.
pub const RESTART_INTERVAL: Duration = Duration::from_secs(30);
/// Announcements at the `started` interval after the agent found the host by itself: the host may not have
/// read one yet.
pub(super) const EAGER_ANNOUNCEMENTS: u8 = 10;
/// Least time between a line and an announcement that was brought forward (host lost, port appeared): a
/// flapping port or host must not cause a flood of events at the host.
pub(super) const MIN_LINE_GAP: Duration = Duration::from_millis(200);
/// Least time between two refused lines in the log: a hostile writer must not fill it.
pub(super) const REFUSED_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Interval between announcements, and between looks at the port, for each state.
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
    /// Returns the same intervals, each raised to [`SHORTEST`] if it is shorter.
    pub(super) fn bounded(self) -> Self {
        Self {
            connect: self.connect.max(SHORTEST),
            started: self.started.max(SHORTEST),
            connected: self.connected.max(SHORTEST),
        }
    }
}
