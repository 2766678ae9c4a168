//! Admission control: which connection to close when another one needs its slot. Only an idle
//! connection, which waits for its peer, is closed; never one that waits for the agent.

use core::time::Duration;

use crate::devlxd::quota::Class;
use crate::time::Uptime;

/// Time after which an idle connection may be closed, and its activity decides the order. A peer at
/// normal speed needs less than a millisecond for any step, but one that was not scheduled for a
/// while should keep its connection. A new client that waits this long is still answered within 100
/// ms.
pub const GRACE: Duration = Duration::from_millis(50);

/// State of a connection, in the order in which idle connections are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Activity {
    /// The answer is sent; the peer has not closed its side.
    Closing,
    /// Between two requests.
    KeptAlive,
    /// Connected; no byte received yet.
    Silent,
    /// Part of a head received.
    Head,
    /// Part of a body received.
    Body,
    /// The peer has not read a piece of the answer.
    Writing,
    /// The peer waits for the agent's answer: not idle.
    Served,
}

/// Properties of a connection that decide whether to close it.
#[derive(Clone, Copy, Debug)]
pub struct Connected {
    pub class: Class,
    pub activity: Activity,
    /// Start of the activity. Single bytes do not reset it, so sending slowly gains nothing.
    pub since: Uptime,
}

/// Returns the eviction candidate with its index; `None` if all connections are being served. It
/// belongs to the class with more connections, so no class loses connections to the other's load.
/// Among connections past their grace, the first activity in order wins, then the longest idle; an
/// answered connection without a new request has no grace. If none is past it, the longest idle
/// wins.
pub fn eviction_candidate(
    all: impl Iterator<Item = (usize, Connected)>,
    now: Uptime,
) -> Option<(usize, Connected)> {
    let past = Uptime(now.0.saturating_sub(GRACE));
    let (mut root, mut others) = (Candidate::default(), Candidate::default());
    for (index, one) in all {
        let of = if one.class == Class::Root { &mut root } else { &mut others };
        of.count += 1;
        let has_grace = one.since > past && one.activity > Activity::KeptAlive;
        let rank = if has_grace { Activity::Served } else { one.activity };
        if one.activity != Activity::Served && of.is_after(rank, one.since) {
            of.first = Some((rank, index, one));
        }
    }
    let [more, fewer] = if root.count > others.count { [root, others] } else { [others, root] };
    more.first.or(fewer.first).map(|(_, index, one)| (index, one))
}

/// A class's eviction candidate so far.
#[derive(Default)]
struct Candidate {
    count: usize,
    first: Option<(Activity, usize, Connected)>,
}

impl Candidate {
    #[inline(always)] // called for each connection
    fn is_after(&self, rank: Activity, since: Uptime) -> bool {
        self.first.is_none_or(|(first, _, one)| {
            first as u8 > rank as u8 || (first == rank && one.since > since)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::at;

    const IDLE: [Activity; 6] = [
        Activity::Closing,
        Activity::KeptAlive,
        Activity::Silent,
        Activity::Head,
        Activity::Body,
        Activity::Writing,
    ];

    fn one(activity: Activity, since: u64) -> Connected {
        Connected { class: Class::Root, activity, since: at(since) }
    }

    fn closed(all: &[Connected], now: u64) -> Option<usize> {
        let all = all.iter().copied().enumerate();
        eviction_candidate(all, at(now)).map(|(index, _)| index)
    }

    #[test]
    fn closes_connections_past_their_grace_in_order_of_activity() {
        // The last in order has been idle for longest.
        let mut all: Vec<_> =
            IDLE.iter().rev().zip(0..).map(|(kind, age)| one(*kind, age)).collect();
        for kind in IDLE {
            let index = closed(&all, 1000).unwrap();
            assert_eq!(all.remove(index).activity, kind);
        }
        assert_eq!(closed(&all, 1000), None);
    }

    #[test]
    fn closes_the_longest_idle_of_one_activity() {
        let all = [30, 10, 20].map(|since| one(Activity::KeptAlive, since));
        assert_eq!(closed(&all, 1000), Some(1));
    }

    #[test]
    fn never_closes_a_connection_being_served() {
        let served = one(Activity::Served, 0);
        assert_eq!(closed(&[served; 3], 1_000_000), None);
        assert_eq!(closed(&[served, one(Activity::Writing, 999_999), served], 1_000_000), Some(1));
    }

    #[test]
    fn closes_within_the_grace_only_if_none_is_past_it() {
        // A slow body past its grace is closed before a connection that was just made.
        let all = [one(Activity::Silent, 990), one(Activity::Body, 950)];
        assert_eq!(closed(&all, 1000), Some(1));
        assert_eq!(closed(&all, 999), Some(1), "none past its grace: the older");
        let all = [one(Activity::Silent, 960), one(Activity::Body, 970)];
        assert_eq!(closed(&all, 1000), Some(0), "a newcomer never waits for a grace");
        let all = [one(Activity::Served, 0), one(Activity::Writing, 100), one(Activity::Body, 120)];
        assert_eq!(closed(&all, 149), Some(1));
        assert_eq!(closed(&all, 170), Some(2), "both past it: the body");
    }

    #[test]
    fn an_answered_connection_has_no_grace() {
        // In a burst of short requests, the longest idle may be a new client about to send one.
        let all = [one(Activity::Silent, 990), one(Activity::KeptAlive, 998)];
        assert_eq!(closed(&all, 1000), Some(1));
        let all = [one(Activity::KeptAlive, 998), one(Activity::Closing, 999)];
        assert_eq!(closed(&all, 1000), Some(1));
        let all = [one(Activity::Silent, 0), one(Activity::KeptAlive, 999)];
        assert_eq!(closed(&all, 1000), Some(1), "nothing is lost with it");
    }

    #[test]
    fn the_class_with_more_connections_loses_one() {
        let root = |activity, since| one(activity, since);
        let other = |activity, since| Connected { class: Class::Others, ..one(activity, since) };
        // Root's has been idle for much longer, but others have more.
        let mut all = Vec::from([
            root(Activity::KeptAlive, 0),
            other(Activity::Writing, 990),
            other(Activity::Writing, 991),
        ]);
        assert_eq!(closed(&all, 1000), Some(1));
        all.extend([root(Activity::Served, 0), root(Activity::Served, 0)]);
        assert_eq!(closed(&all, 1000), Some(0), "root has more");
        all[0].activity = Activity::Served;
        assert_eq!(closed(&all, 1000), Some(1), "but all of root's are being served");
        let all = [root(Activity::Closing, 0), other(Activity::Writing, 0)];
        assert_eq!(closed(&all, 1000), Some(1), "others' of as many");
    }
}
