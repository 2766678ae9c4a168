//! Timing of the status channel: every period and deadline with its reason.

use core::time::Duration;

/// Pause before the first retry of a host that has just given its address: short, because the host
/// is up. Later pauses grow, because calls of too many guests may overload it. Also the pause
/// between followed CONNECT lines, so that a hostile writer causes at most ten calls a second.
pub const CONNECT: Duration = Duration::from_millis(100);
/// Interval between announcements in STARTED. The Go agents take 5 s, long for a restarted host.
pub const STARTED: Duration = Duration::from_secs(1);
/// Interval between announcements in CONNECTED: a restarted host has forgotten its agents, and acts
/// only on STARTED. The Go agents take 5 s, which makes the host read the ring three times as
/// often. A host that uses PUT reads the ring every 10 s and finds the [`REFRESH`] there. A host
/// that uses CONNECT sends it again after a restart, and would answer each announcement.
pub const CONNECTED: Duration = Duration::from_secs(30);
/// Minimum interval that an option can set: zero would be a busy loop.
pub const SHORTEST: Duration = Duration::from_millis(10);
/// In CONNECTED, from a visible line to the silent STARTED that refreshes the ring. The silent line
/// raises no event, so it costs the host nothing, but a restarted host finds it at its first read.
/// By then the host has read the visible line: QEMU delays its event for up to a second.
pub const REFRESH: Duration = Duration::from_millis(1500);
/// Interval between further silent STARTED lines. A host reads the ring 10 s after the last event
/// and every 10 s from then on (P§2.3); a line follows 1.5 s after each read. After a read at any
/// other time the ring is full again within 5 s.
pub const REFRESHED: Duration = Duration::from_secs(5);
/// Deadline of one verification: the host waits 3 s for the answer to its PUT (P§3.2).
pub const VERIFY: Duration = Duration::from_secs(3);
/// Total time of the attempts for one CONNECT line; then announcements resume.
pub const CONNECT_DEADLINE: Duration = Duration::from_secs(2);
/// Pause after a CONNECT line that replaced a running verification, until mote follows the next
/// line. An abandoned call holds a socket for up to [`VERIFY`], so there are at most four.
pub const REPLACED_PAUSE: Duration = Duration::from_secs(1);
/// First pause between the agent's own verifications of the known address; it doubles up to
/// [`VERIFY_BACKOFF_MAX`].
pub const VERIFY_BACKOFF_MIN: Duration = Duration::from_secs(1);
/// Maximum pause between the agent's own verifications.
pub const VERIFY_BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Time from STARTED without an answer to STOPPED and STARTED. A host that missed the loss of the
/// agent, or was killed and restarted, sends PUT only after these two lines (P§2.3).
pub const NO_CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// Pause between the STOPPED and STARTED of [`NO_CALL_TIMEOUT`], so that the host reads both: QEMU
/// may delay an event for a second (P§2.2).
pub const STOPPED_TO_STARTED: Duration = Duration::from_millis(1500);
/// Minimum interval between two of these pairs of lines, because Incus shows them to its users.
pub const RESTART_INTERVAL: Duration = Duration::from_secs(30);
/// Number of announcements at the `started` interval after the agent has found the host by itself,
/// because the host may have read none.
pub(super) const EAGER_ANNOUNCEMENTS: u8 = 10;
/// Minimum time between a line and an announcement that was brought forward (host lost, port
/// appeared): a flapping port or host must not flood the host with events.
pub(super) const MIN_LINE_GAP: Duration = Duration::from_millis(200);
/// Minimum time between two log lines about refused lines: a hostile writer must not fill the log.
pub(super) const REFUSED_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Interval between announcements, and between reads of the port, for each state.
#[derive(Clone, Copy, Debug)]
pub struct Intervals {
    pub connect: Duration,
    pub started: Duration,
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
