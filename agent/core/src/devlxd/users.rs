//! What the users of the guest share: places, and calls to the host. Nobody takes all of either, so who comes
//! next finds something left.

use core::time::Duration;

use crate::http::admission::Bounds;
use crate::time::Uptime;

/// Users told apart, number of. Usually there is one, root: nobody else may open the socket. The eighth shares
/// its part with all beyond.
const USERS: usize = 8;
/// Price of a call to the host, in time: 100 calls a second by all users together, about what a Go agent
/// manages on one CPU (a fifteenth of our 1,300, `docs/bench.md`). So a guest loads its host no more than
/// before. A call that is not paid for waits.
const PRICE: Duration = Duration::from_millis(10);
/// Most that a user saves up: 2,000 calls at once after a rest. cloud-init and LXD's tools make some tens; a
/// script that asks one by one all the time gets its first 1.5 s at full speed.
const SAVINGS: Duration = Duration::from_secs(20);

/// Places that users share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the line of those whose request is for the host, until it is answered.
    Line,
    /// For more memory than each connection has.
    Large,
    /// To be answered by the host.
    Answer,
    /// The same for what may take minutes.
    Long,
    /// To hear events.
    Listener,
    /// To have an answer longer than [`SHORT_REPLY`](crate::limits::SHORT_REPLY) held in memory: one for all.
    LongAnswer,
}

/// Number of kinds of place.
const PLACES: usize = Place::LongAnswer as usize + 1;

/// Number of a user in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User(usize);

/// When a call's turn is: once its user has earned so much.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Turn(Duration);

/// What one user has.
#[derive(Clone, Copy, Debug)]
struct Account {
    uid: u32,
    connections: usize,
    held: [usize; PLACES],
    /// Time given to this user, and the price of all its calls.
    earned: Duration,
    spent: Duration,
}

/// All users. Whoever has no connection and all savings is forgotten.
#[derive(Debug)]
pub struct Users {
    accounts: [Account; USERS],
    free: [usize; PLACES],
    at: Uptime,
}

impl Account {
    fn saves(&self) -> bool {
        self.earned < self.spent + SAVINGS
    }

    fn is_idle(&self) -> bool {
        self.connections == 0 && self.held == [0; PLACES] && !self.saves()
    }
}

impl Users {
    /// Nobody yet, and the places that `bounds` allow.
    #[must_use]
    pub const fn new(bounds: Bounds) -> Self {
        let Bounds { connections: _, line, large, answers, long, listeners } = bounds;
        let nobody = Account {
            uid: 0,
            connections: 0,
            held: [0; PLACES],
            earned: SAVINGS,
            spent: Duration::ZERO,
        };
        Self {
            accounts: [nobody; USERS],
            free: [line, large, answers, long, listeners, 1],
            at: Uptime(Duration::ZERO),
        }
    }

    /// Counts a connection of this user id.
    pub fn join(&mut self, uid: u32, now: Uptime) -> User {
        self.earn(now);
        let mut all = self.accounts.iter();
        let own = all.position(|account| account.uid == uid);
        let index = own.or_else(|| self.accounts.iter().position(Account::is_idle));
        let user = User(index.unwrap_or(USERS - 1));
        if let Some(account) = self.account(user) {
            if account.is_idle() {
                account.uid = uid;
            }
            account.connections += 1;
        }
        user
    }

    /// A connection is gone.
    pub fn leave(&mut self, user: User) {
        if let Some(account) = self.account(user) {
            account.connections -= 1;
        }
    }

    /// The user with most connections.
    #[must_use]
    pub fn largest(&self) -> User {
        let all = self.accounts.iter().enumerate();
        User(all.max_by_key(|(_, account)| account.connections).map_or(0, |(index, _)| index))
    }

    /// Takes a place; false if the user has as many as are left for others.
    pub fn take(&mut self, user: User, place: Place) -> bool {
        let Some(free) = self.free.get_mut(place as usize) else { return false };
        let held = self.accounts.get_mut(user.0).and_then(|all| all.held.get_mut(place as usize));
        let Some(held) = held.filter(|held| **held < *free) else { return false };
        *held += 1;
        *free -= 1;
        true
    }

    /// Gives a place back.
    pub fn give_back(&mut self, user: User, place: Place) {
        let Some(free) = self.free.get_mut(place as usize) else { return };
        *free += 1;
        let held = self.accounts.get_mut(user.0).and_then(|all| all.held.get_mut(place as usize));
        if let Some(held) = held {
            *held -= 1;
        }
    }

    /// Charges a user for a call to the host.
    pub fn charge(&mut self, user: User, now: Uptime) -> Turn {
        self.earn(now);
        self.account(user).map_or(Turn(Duration::ZERO), |account| {
            account.spent += PRICE;
            Turn(account.spent)
        })
    }

    /// How long to wait before the next look at this turn; `None` if it has come.
    pub fn wait(&mut self, user: User, turn: Turn, now: Uptime) -> Option<Duration> {
        self.earn(now);
        let left = turn.0.saturating_sub(self.account(user)?.earned);
        (!left.is_zero()).then_some(left)
    }

    /// Gives the time since the last look to those who have not all savings yet, in equal parts.
    fn earn(&mut self, now: Uptime) {
        let passed = now - self.at;
        self.at = self.at.max(now);
        let saving = self.accounts.iter().filter(|account| account.saves()).count();
        let parts = u32::try_from(saving).unwrap_or(u32::MAX);
        let Some(part) = passed.checked_div(parts) else { return };
        for account in self.accounts.iter_mut().filter(|account| account.saves()) {
            account.earned = (account.earned + part).min(account.spent + SAVINGS);
        }
    }

    fn account(&mut self, user: User) -> Option<&mut Account> {
        self.accounts.get_mut(user.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::vec::Vec;

    const CALLS: u32 = 2000;

    fn users() -> Users {
        Users::new(Bounds::of(16_384))
    }

    fn at(millis: u64) -> Uptime {
        Uptime::from_millis(millis)
    }

    /// Calls of these users, as many at once as given, looked at every 10 ms until then: how many had their
    /// turn.
    fn calls(users: &mut Users, all: &[User], ahead: usize, from: u64, to: u64) -> Vec<u32> {
        let mut waiting: Vec<VecDeque<Turn>> = all.iter().map(|_| VecDeque::new()).collect();
        let mut done: Vec<u32> = all.iter().map(|_| 0).collect();
        for now in (from..to).step_by(10).map(at) {
            for ((user, waiting), done) in all.iter().zip(&mut waiting).zip(&mut done) {
                // In the order of asking, as turns come.
                while let Some(first) = waiting.front()
                    && users.wait(*user, *first, now).is_none()
                {
                    waiting.pop_front();
                    *done += 1;
                }
                while waiting.len() < ahead {
                    waiting.push_back(users.charge(*user, now));
                }
            }
        }
        done
    }

    #[test]
    fn a_rested_user_calls_two_thousand_times_at_once_and_a_hundred_times_a_second_after_that() {
        let mut users = users();
        let root = users.join(0, at(5));
        for _ in 0..CALLS {
            let turn = users.charge(root, at(5));
            assert_eq!(users.wait(root, turn, at(5)), None);
        }
        let (next, after) = (users.charge(root, at(5)), users.charge(root, at(5)));
        assert_eq!(users.wait(root, next, at(5)), Some(PRICE));
        assert_eq!(users.wait(root, after, at(5)), Some(2 * PRICE));
        assert_eq!(users.wait(root, next, at(14)), Some(Duration::from_millis(1)));
        assert_eq!(users.wait(root, next, at(15)), None);
        assert_eq!(users.wait(root, after, at(15)), Some(PRICE));
        // Nobody waits longer for that the clock is late.
        assert_eq!(users.wait(root, after, at(1)), Some(PRICE));
        let done = calls(&mut users, &[root], 10, 25, 10_025);
        assert!((990..=1001).contains(&done[0]), "{done:?}");
    }

    #[test]
    fn who_rests_saves_up_again_and_no_more_than_before() {
        let mut users = users();
        let root = users.join(0, at(0));
        // All savings are spent; 5 s later there are 500 calls, and after a long rest all of them again.
        for (now, calls) in [(0, CALLS), (5_000, 500), (1_000_000, CALLS)] {
            for _ in 0..calls {
                let turn = users.charge(root, at(now));
                assert_eq!(users.wait(root, turn, at(now)), None);
            }
            let account = users.account(root).unwrap();
            assert_eq!(account.earned, account.spent, "nothing is left");
        }
    }

    #[test]
    fn who_calls_without_end_slows_nobody_who_does_not() {
        let mut users = users();
        let (wild, calm) = (users.join(1000, at(0)), users.join(0, at(0)));
        for _ in 0..CALLS {
            let _spent = users.charge(wild, at(30_000));
        }
        for _ in 0..CALLS {
            let turn = users.charge(calm, at(30_000));
            assert_eq!(users.wait(calm, turn, at(30_000)), None);
        }
        let rates = calls(&mut users, &[wild, calm], 100, 30_000, 50_000);
        assert!(rates.iter().all(|rate| (990..=1010).contains(rate)), "half each: {rates:?}");
    }

    #[test]
    fn any_number_of_users_call_no_more_than_the_table_has_savings() {
        let mut users = users();
        let mut done = 0;
        for uid in 0..100 {
            let now = u64::from(uid) * 100;
            let user = users.join(uid, at(now));
            done += calls(&mut users, &[user], 3000, now, now + 100)[0];
            users.leave(user);
        }
        let most = CALLS * u32::try_from(USERS).unwrap() + 100 * 10;
        assert!(done <= most && done > CALLS, "{done} of {most}");
    }

    #[test]
    fn a_user_who_rests_without_connections_is_forgotten() {
        let mut users = users();
        let all: Vec<_> = (0..8).map(|uid| users.join(uid, at(0))).collect();
        assert_eq!(users.join(8, at(0)), all[7], "the last part is shared");
        users.leave(all[3]);
        assert_eq!(users.join(9, at(0)), all[3]);
        assert_eq!(users.join(9, at(0)), all[3], "the same user");
        users.leave(all[4]);
        let _paid = users.charge(all[4], at(0));
        assert_eq!(users.join(10, at(0)), all[7], "the fifth is not idle yet");
        assert_eq!(users.join(11, at(10)), all[4]);
    }

    #[test]
    fn a_user_gets_half_of_the_places_and_two_a_third_each() {
        let mut users = users();
        let (first, second) = (users.join(0, at(0)), users.join(1, at(0)));
        let take =
            |users: &mut Users, user, place| (0..).take_while(|_| users.take(user, place)).count();
        for (place, all) in [(Place::Answer, 64), (Place::Long, 64), (Place::Listener, 256)] {
            assert_eq!(take(&mut users, first, place), all / 2);
            let rest = take(&mut users, second, place);
            assert_eq!(rest, all / 4, "of what is left");
            let third = users.join(2, at(0));
            assert!(users.take(third, place));
            users.give_back(third, place);
            users.leave(third);
            users.give_back(first, place);
            assert!(users.take(second, place) && !users.take(second, place));
        }
    }

    #[test]
    fn the_user_with_most_connections_is_known() {
        let mut users = users();
        let (first, second) = (users.join(7, at(0)), users.join(0, at(0)));
        let _more = users.join(7, at(0));
        assert_eq!(users.largest(), first);
        users.leave(first);
        users.leave(first);
        assert_eq!(users.largest(), second);
    }
}
