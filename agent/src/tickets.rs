//! Which call to the host resumes an earlier one's TLS session, and which makes a full handshake, at
//! twelve times the work (docs/cost.md). The host gives a ticket in each connection, for one use
//! (RFC 8446 §4.6.1, C.4). Many guests who ask at once would all make full handshakes, for want of tickets
//! that are just coming; so few make one at a time, and the others wait for what those earn. With each round
//! there are more tickets than before, so no more wait than a slow host makes worth it.

use heapless::Deque;

/// Tickets kept. In a burst more are about, but each goes to who waits for it.
const KEPT: usize = 8;
/// Full handshakes at once.
const EARNERS: u8 = 2;

/// What a new call may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Begin: there is a ticket to take, or waiting for one would be in vain.
    Go,
    /// Begin with a full handshake. [`Tickets::earned`] when it has been answered or given up.
    Earn(Earner),
    /// Ask again when a ticket was put or an earner has ended, or begin when that takes too long.
    Wait,
}

/// Who makes a full handshake, in which the host may give a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Earner {
    seen: u32,
}

/// The tickets of one host.
#[derive(Debug)]
pub struct Tickets<T> {
    /// Oldest first.
    kept: Deque<T, KEPT>,
    /// How many ever came; may wrap around.
    came: u32,
    earners: u8,
    /// The host was seen to give none.
    gives_none: bool,
}

impl<T> Default for Tickets<T> {
    fn default() -> Self {
        Self { kept: Deque::new(), came: 0, earners: 0, gives_none: false }
    }
}

impl<T> Tickets<T> {
    /// Whether a call may begin. One that goes takes its ticket at once.
    pub fn turn(&mut self) -> Turn {
        if !self.kept.is_empty() || self.gives_none {
            return Turn::Go;
        }
        if self.earners >= EARNERS {
            return Turn::Wait;
        }
        self.earners += 1;
        Turn::Earn(Earner { seen: self.came })
    }

    /// The newest: it is the one most likely to be known still.
    pub fn take(&mut self) -> Option<T> {
        self.kept.pop_back()
    }

    /// Keeps one in the place of the oldest.
    pub fn put(&mut self, ticket: T) {
        self.came = self.came.wrapping_add(1);
        self.gives_none = false;
        if self.kept.is_full() {
            drop(self.kept.pop_front());
        }
        let Ok(()) = self.kept.push_back(ticket) else { unreachable!("one has just gone") };
    }

    /// An earner has its answer, before which its ticket would have come, or none at all.
    pub fn earned(&mut self, earner: Earner, answered: bool) {
        self.earners = self.earners.saturating_sub(1);
        self.gives_none |= answered && earner.seen == self.came;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn earn(tickets: &mut Tickets<u32>) -> Earner {
        match tickets.turn() {
            Turn::Earn(earner) => earner,
            other @ (Turn::Go | Turn::Wait) => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_newest_is_used_once_and_eight_are_kept() {
        let mut tickets = Tickets::default();
        (0..10).for_each(|ticket| tickets.put(ticket));
        let all: Vec<u32> = std::iter::from_fn(|| tickets.take()).collect();
        assert_eq!(all, [9, 8, 7, 6, 5, 4, 3, 2]);
    }

    #[test]
    fn two_earn_and_the_others_wait_for_what_they_do() {
        let mut tickets = Tickets::default();
        let (first, second) = (earn(&mut tickets), earn(&mut tickets));
        assert_eq!(tickets.turn(), Turn::Wait);
        tickets.put(1);
        assert_eq!(tickets.turn(), Turn::Go);
        assert_eq!(tickets.take(), Some(1));
        // Its answer may be long in coming: until then it stays an earner, though it has given.
        assert_eq!(tickets.turn(), Turn::Wait);
        tickets.earned(first, true);
        let third = earn(&mut tickets);
        assert_eq!(tickets.turn(), Turn::Wait);
        // No answer says nothing about tickets.
        tickets.earned(second, false);
        tickets.earned(third, false);
        assert!(matches!(tickets.turn(), Turn::Earn(_)));
    }

    #[test]
    fn nobody_waits_for_a_host_that_gives_none_until_it_does() {
        let mut tickets = Tickets::default();
        let (first, second) = (earn(&mut tickets), earn(&mut tickets));
        tickets.earned(first, true);
        assert_eq!(tickets.turn(), Turn::Go);
        assert_eq!(tickets.take(), None);
        tickets.put(1);
        // The ticket came in its time, so it does not prove anything.
        tickets.earned(second, true);
        assert_eq!((tickets.turn(), tickets.take()), (Turn::Go, Some(1)));
        assert!(matches!(tickets.turn(), Turn::Earn(_)));
    }

    /// Begins as many of the calls that are left as may; whether each earns.
    fn begin(tickets: &mut Tickets<u32>, left: &mut usize, begun: &mut Vec<Option<Earner>>) {
        while *left > 0 {
            begun.push(match tickets.turn() {
                Turn::Go => tickets.take().map(|_| None).expect("a ticket"),
                Turn::Earn(earner) => Some(earner),
                Turn::Wait => return,
            });
            *left -= 1;
        }
    }

    /// `calls` at once at a host that answers each one step later, when there was one ticket: how
    /// many steps that takes, and how many full handshakes.
    fn burst(calls: usize) -> (usize, usize) {
        let mut tickets = Tickets::default();
        tickets.put(0);
        let (mut left, mut steps, mut full) = (calls, 0, 0);
        let mut begun = Vec::new();
        begin(&mut tickets, &mut left, &mut begun);
        while !begun.is_empty() {
            steps += 1;
            let mut next = Vec::new();
            for earner in begun {
                tickets.put(1);
                if let Some(earner) = earner {
                    full += 1;
                    tickets.earned(earner, true);
                }
                begin(&mut tickets, &mut left, &mut next);
            }
            begun = next;
        }
        assert_eq!(left, 0);
        (steps, full)
    }

    #[test]
    fn a_burst_is_soon_over_and_few_of_it_are_full_handshakes() {
        assert_eq!(burst(1), (1, 0));
        assert_eq!(burst(3), (1, 2));
        let (steps, full) = burst(64);
        assert!(steps <= 8 && full <= 14, "{steps} steps, {full} full handshakes");
    }
}
