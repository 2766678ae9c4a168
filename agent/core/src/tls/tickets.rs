//! Decides which call to the host resumes a TLS session and which makes a full handshake, at twelve
//! times the cost (docs/results/cost.md). The host sends a single-use ticket in each connection
//! (RFC 8446 §4.6.1, C.4). Without a limit, a burst of calls would make only full handshakes for
//! lack of tickets. So only a few calls at a time make one, and the others wait for the tickets
//! that these earn. A call uses one ticket and gets another, so each full handshake adds a ticket,
//! and a burst ends after a few rounds.

use heapless::Deque;

/// Maximum number of stored tickets. In a burst more arrive, but waiting calls take them at once.
const MAX_TICKETS: usize = 8;
/// Maximum number of concurrent full handshakes.
const EARNERS: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Begin: a ticket is available, or the host sends none.
    Go,
    /// Begin with a full handshake; [`Tickets::earned`] must follow when it has ended.
    Earn(Earner),
    /// Retry after [`Tickets::put`] or [`Tickets::earned`], or begin after too long a wait.
    Wait,
}

/// Permit for a full handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Earner {
    seen: u32,
}

#[derive(Debug)]
pub struct Tickets<T> {
    /// Oldest first.
    kept: Deque<T, MAX_TICKETS>,
    /// Number of received tickets; wraps around.
    came: u32,
    /// Number of full handshakes in progress.
    earners: u8,
    /// A full handshake was answered without a ticket, and none has arrived since.
    gives_none: bool,
}

impl<T> Default for Tickets<T> {
    fn default() -> Self {
        Self { kept: Deque::new(), came: 0, earners: 0, gives_none: false }
    }
}

impl<T> Tickets<T> {
    /// Decides whether a call may begin. [`Tickets::take`] must follow [`Turn::Go`] immediately.
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

    /// Takes the newest ticket, which the host is most likely to accept.
    pub fn take(&mut self) -> Option<T> {
        self.kept.pop_back()
    }

    /// Adds a ticket; drops the oldest if there are too many.
    pub fn put(&mut self, ticket: T) {
        self.came = self.came.wrapping_add(1);
        self.gives_none = false;
        if self.kept.is_full() {
            drop(self.kept.pop_front());
        }
        let Ok(()) = self.kept.push_back(ticket) else { unreachable!("a slot was just freed") };
    }

    /// Returns a permit. If the call was `answered` and no ticket has arrived since the permit was
    /// issued, the host sends none: tickets arrive before the answer.
    pub fn earned(&mut self, earner: Earner, answered: bool) {
        self.earners = self.earners.saturating_sub(1);
        self.gives_none |= answered && earner.seen == self.came;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn earn(tickets: &mut Tickets<u32>) -> Earner {
        match tickets.turn() {
            Turn::Earn(earner) => earner,
            other @ (Turn::Go | Turn::Wait) => panic!("{other:?}"),
        }
    }

    #[test]
    fn two_calls_make_full_handshakes_and_others_wait() {
        let mut tickets = Tickets::default();
        let (first, second) = (earn(&mut tickets), earn(&mut tickets));
        assert_eq!(tickets.turn(), Turn::Wait);
        tickets.put(1);
        assert_eq!(tickets.turn(), Turn::Go);
        assert_eq!(tickets.take(), Some(1));
        // The call keeps its permit until its answer arrives, even after its ticket has arrived.
        assert_eq!(tickets.turn(), Turn::Wait);
        tickets.earned(first, true);
        let third = earn(&mut tickets);
        assert_eq!(tickets.turn(), Turn::Wait);
        // A call without an answer shows nothing about tickets.
        tickets.earned(second, false);
        tickets.earned(third, false);
        assert!(matches!(tickets.turn(), Turn::Earn(_)));
    }

    #[test]
    fn calls_do_not_wait_for_a_host_without_tickets() {
        let mut tickets = Tickets::default();
        let (first, second) = (earn(&mut tickets), earn(&mut tickets));
        tickets.earned(first, true);
        assert_eq!(tickets.turn(), Turn::Go);
        assert_eq!(tickets.take(), None);
        tickets.put(1);
        // A ticket has arrived since it began, so its answer proves nothing.
        tickets.earned(second, true);
        assert_eq!((tickets.turn(), tickets.take()), (Turn::Go, Some(1)));
        assert!(matches!(tickets.turn(), Turn::Earn(_)));
    }

    /// Simulates `calls` at once, with one ticket, to a host that answers each call one step later.
    /// Returns the number of steps and of full handshakes.
    fn burst(mut calls: usize) -> (usize, usize) {
        let mut tickets = Tickets::default();
        tickets.put(0);
        // Begins as many of the remaining calls as are permitted.
        let mut begin = |tickets: &mut Tickets<u32>| {
            let mut begun = Vec::new();
            while calls > 0 {
                begun.push(match tickets.turn() {
                    Turn::Go => tickets.take().map(|_| None).expect("a ticket"),
                    Turn::Earn(earner) => Some(earner),
                    Turn::Wait => break,
                });
                calls -= 1;
            }
            begun
        };
        let (mut steps, mut full) = (0, 0);
        let mut begun = begin(&mut tickets);
        while !begun.is_empty() {
            steps += 1;
            let mut next = Vec::new();
            for earner in begun {
                tickets.put(1);
                if let Some(earner) = earner {
                    full += 1;
                    tickets.earned(earner, true);
                }
                next.extend(begin(&mut tickets));
            }
            begun = next;
        }
        assert_eq!(calls, 0);
        (steps, full)
    }

    #[test]
    fn a_burst_makes_few_full_handshakes() {
        assert_eq!(burst(1), (1, 0));
        assert_eq!(burst(3), (1, 2));
        let (steps, full) = burst(64);
        assert!(steps <= 8 && full <= 14, "{steps} steps, {full} full handshakes");
    }
}
