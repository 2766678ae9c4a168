//! Admission control: which connection to close when another one needs its slot. Only an idle
//! connection, which waits for its peer, is closed; never one that waits for the agent.

use core::time::Duration;

use crate::devlxd::quota::Class;
use crate::time::Uptime;

/// Idle time after which a connection may be closed; from then on, its activity decides the order.
/// A peer normally needs less than a millisecond for a step, but one that was not scheduled for a
/// while should keep its connection. A client that waits this long is still answered within 100 ms.
pub const GRACE: Duration = Duration::from_millis(50);

/// How long to wait in total for the first message of a caller that has not proved its identity, while
/// others wait for its slot. A host sends it immediately.
const UNHEARD: Duration = Duration::from_millis(20);
/// How long to wait in total once the agent has answered that message. The answer costs the agent
/// milliseconds, so an attack occupies few slots in this time.
const ANSWERED: Duration = Duration::from_millis(200);

/// How long a caller that has not proved its identity may still keep the agent waiting. Single
/// bytes do not extend it. The agent's own work, which for a burst of the host's calls may take
/// seconds, does not count.
#[derive(Debug)]
pub struct Patience(Duration);

impl Patience {
    #[expect(clippy::new_without_default, reason = "the default is not zero")]
    pub fn new() -> Self {
        Self(UNHEARD)
    }

    /// Records that the agent has answered.
    pub fn answered(&mut self) {
        self.0 = ANSWERED;
    }

    /// Returns when a wait that begins now uses up the remaining time.
    pub fn end(&self, now: Uptime) -> Uptime {
        now + self.0
    }

    pub fn waited(&mut self, time: Duration) {
        self.0 = self.0.saturating_sub(time);
    }
}

/// State of a connection, in the order in which idle connections are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Activity {
    /// The answer is sent; the peer has not closed its side.
    Closing,
    /// Between two requests.
    KeptAlive,
    /// Connected; no byte received yet.
    Silent,
    /// Part of a head has been received.
    Head,
    /// Part of a body has been received.
    Body,
    /// The peer has not read a part of the answer.
    Writing,
    /// Not idle: the peer waits for the agent's answer.
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

/// Returns the eviction candidate with its index; `None` if all connections are being served. The
/// candidate belongs to the class with more connections, so no class loses connections to the
/// other's load. Connections past their grace are chosen by the order of [`Activity`], then by idle
/// time; an answered connection without a new request has no grace. If none is past its grace, the
/// longest idle one is chosen.
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

    #[test]
    fn only_the_callers_own_time_counts_against_it() {
        let mut patience = Patience::new();
        // Five bytes, 3 ms apart; each takes the agent 100 ms.
        for begun in [0, 103, 206, 309, 412] {
            assert!(patience.end(at(begun)) > at(begun + 3));
            patience.waited(Duration::from_millis(3));
        }
        assert_eq!(patience.end(at(515)), at(520));
        patience.waited(UNHEARD);
        assert_eq!(patience.end(at(1000)), at(1000));
        patience.answered();
        assert_eq!(patience.end(at(1000)), at(1200));
    }

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
