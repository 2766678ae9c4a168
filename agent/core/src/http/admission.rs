//! Admission control: limits on connections, and which one to close when another needs its slot.
//! Only a resting connection is closed, one whose next step is the peer's, never one that waits
//! for our answer.

use core::time::Duration;

use crate::time::Uptime;

/// Rest after which a connection can be closed for its permit, and after which its activity decides
/// the order. A peer at normal pace needs less than a millisecond for any step; one that was not
/// scheduled for a while should not be closed for that. Short enough that a newcomer that has to
/// wait for it is answered within 100 ms.
pub const GRACE: Duration = Duration::from_millis(50);

/// State of a connection. Resting connections are closed in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Activity {
    /// We have sent everything; the peer has yet to close its side.
    Closing,
    /// Between two requests.
    Idle,
    /// Connected; no byte received yet.
    Silent,
    /// Part of a head received.
    Head,
    /// Part of a body received.
    Body,
    /// A piece of the answer is waiting for the peer to read it.
    Writing,
    /// The peer waits for our answer: not resting.
    Served,
}

/// Facts about a connection that decide whether to close it.
#[derive(Clone, Copy, Debug)]
pub struct Connected {
    /// Its current activity.
    pub activity: Activity,
    /// Start of the activity; single bytes do not renew it, so a slow drip gains nothing.
    pub since: Uptime,
}

impl Connected {
    fn rests(&self) -> bool {
        self.activity != Activity::Served
    }

    /// True if the activity has lasted [`GRACE`], so that it can be closed for its permit too.
    #[must_use]
    pub fn is_past_grace(&self, now: Uptime) -> bool {
        self.since + GRACE <= now
    }
}

/// Chooses the connection to close first; the numbers are the caller's. Past their grace, the first
/// activity in order, and of one activity the longest resting. If none is past it, the longest
/// resting, which is also the next to be past it. `None` if all are being served.
pub fn first_to_go(
    all: &mut dyn Iterator<Item = (usize, Connected)>,
    now: Uptime,
) -> Option<(usize, Connected)> {
    let key = |(_, one): &(usize, Connected)| {
        let past = one.is_past_grace(now).then_some(one.activity);
        (past.is_none(), past, one.since)
    };
    all.filter(|(_, one)| one.rests()).min_by_key(key)
}

/// Line that there is however few descriptors there are, number of requests: it costs none of them, and a
/// hundred clients at once are all served.
const LINE: usize = 256;

/// Limits on what guests can make us hold at once. A user gets at most as many places of a kind as are left:
/// half of them, or a third if there are two ([`Users`](crate::devlxd::users::Users)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Connections. A resting one costs little; beyond the limit one is closed.
    pub connections: usize,
    /// Requests for the host that wait or are answered. Beyond the limit: 429. For any user it is less than the
    /// connections, unless there are few descriptors, so one of those can always be closed for a newcomer.
    pub line: usize,
    /// Requests too large for a connection's own buffer. Beyond the limit a request waits, or a
    /// resting one is closed.
    pub large: usize,
    /// Requests that are being answered by the host. Beyond the limit a request waits, or one whose
    /// client does not read its answer is closed.
    pub answers: usize,
    /// Requests without a time limit: waiting for an operation, downloading an image. Beyond the
    /// limit: 503.
    pub long: usize,
    /// Event listeners. Beyond the limit: 503.
    pub listeners: usize,
}

impl Bounds {
    /// Limits for a process that may have so many descriptors. A request takes up to two; the rest
    /// is for the host's connections.
    #[must_use]
    pub fn of(descriptors: usize) -> Self {
        let part = |most: usize, divisor: usize| most.min(descriptors / divisor).max(1);
        Self {
            connections: part(1024, 2),
            line: part(1024, 2).max(LINE),
            large: 32,
            answers: part(64, 8),
            long: part(64, 16),
            listeners: part(256, 8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const RESTING: [Activity; 6] = [
        Activity::Closing,
        Activity::Idle,
        Activity::Silent,
        Activity::Head,
        Activity::Body,
        Activity::Writing,
    ];

    fn at(millis: u64) -> Uptime {
        Uptime::from_millis(millis)
    }

    fn one(activity: Activity, since: u64) -> Connected {
        Connected { activity, since: at(since) }
    }

    fn closed(all: &[Connected], now: u64) -> Option<usize> {
        first_to_go(&mut all.iter().copied().enumerate(), at(now)).map(|(index, _)| index)
    }

    /// The first to be closed, and whether it is past its grace.
    fn first(all: &[Connected], now: u64) -> Option<(usize, bool)> {
        let first = first_to_go(&mut all.iter().copied().enumerate(), at(now));
        first.map(|(index, one)| (index, one.is_past_grace(at(now))))
    }

    #[test]
    fn past_their_grace_connections_are_closed_in_the_order_of_activities() {
        // The last in order has rested for longest.
        let mut all: Vec<_> =
            RESTING.iter().rev().zip(0..).map(|(kind, age)| one(*kind, age)).collect();
        for kind in RESTING {
            let index = closed(&all, 1000).unwrap();
            assert_eq!(all.remove(index).activity, kind);
        }
        assert_eq!(closed(&all, 1000), None);
    }

    #[test]
    fn of_one_activity_the_longest_resting_is_closed() {
        let all = [30, 10, 20].map(|since| one(Activity::Idle, since));
        assert_eq!(closed(&all, 1000), Some(1));
    }

    #[test]
    fn a_connection_being_served_is_never_closed() {
        let served = one(Activity::Served, 0);
        assert_eq!(closed(&[served; 3], 1_000_000), None);
        assert_eq!(closed(&[served, one(Activity::Writing, 999_999), served], 1_000_000), Some(1));
    }

    #[test]
    fn within_its_grace_a_connection_is_closed_only_if_none_is_past_it() {
        // A slow body past its grace is closed before a connection that was just made.
        let all = [one(Activity::Silent, 990), one(Activity::Body, 950)];
        assert_eq!(closed(&all, 1000), Some(1));
        assert_eq!(closed(&all, 999), Some(1), "none past its grace: the older");
        let all = [one(Activity::Silent, 960), one(Activity::Body, 970)];
        assert_eq!(closed(&all, 1000), Some(0), "a newcomer never waits for a grace");
    }

    #[test]
    fn the_first_within_its_grace_will_be_the_first_past_it() {
        let all = [one(Activity::Served, 0), one(Activity::Writing, 100), one(Activity::Body, 120)];
        assert_eq!(first(&all, 149), Some((1, false)));
        assert_eq!(first(&all, 150), Some((1, true)));
        // Both past it: the body is closed first.
        assert_eq!(first(&all, 170), Some((2, true)));
        assert_eq!(first(&[], 7), None);
    }

    #[test]
    fn bounds_fit_into_the_descriptors_and_are_never_zero() {
        let most = Bounds {
            connections: 1024,
            line: 1024,
            large: 32,
            answers: 64,
            long: 64,
            listeners: 256,
        };
        assert_eq!(Bounds::of(16_384), most);
        for descriptors in [0, 20, 64, 256, 1024, 4096, 65_536] {
            let Bounds { connections, line, large: _, answers, long, listeners } =
                Bounds::of(descriptors);
            assert!(line / 2 < connections || descriptors < 512, "{line} of {connections}");
            assert!([connections, answers, long, listeners].iter().all(|bound| *bound > 0));
            // Each answer has a connection to the host beside the guest's.
            let sum = connections + answers + long + listeners;
            assert!(sum <= descriptors.max(4) * 13 / 16 + 3, "{sum} of {descriptors}");
        }
    }
}
