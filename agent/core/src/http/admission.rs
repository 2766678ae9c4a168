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
/// Connections past their grace are chosen by the order of [`Activity`], then by idle time; an
/// answered connection without a new request has no grace. If none is past its grace, the longest
/// idle one is chosen.
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

    /// The fuzz target `admission` compares the choice with an independent order.
    #[test]
    fn never_closes_a_connection_being_served() {
        let one = |activity, since| Connected { class: Class::Root, activity, since: at(since) };
        let closed = |all: &[Connected]| {
            eviction_candidate(all.iter().copied().enumerate(), at(1_000_000)).map(|it| it.0)
        };
        let served = one(Activity::Served, 0);
        assert_eq!(closed(&[served; 3]), None);
        assert_eq!(closed(&[served, one(Activity::Writing, 999_999), served]), Some(1));
    }
}
