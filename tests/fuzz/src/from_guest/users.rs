//! The table of users under arbitrary operations. What must hold: no place is lost or given twice, and nobody gets
//! more than is left for others; all users together call the host no more often than their savings and the rate
//! allow; whoever waits as long as he is told, and for the others too, has his turn.

use core::time::Duration;

use mote_core::devlxd::users::{Place, Turn, User, Users};
use mote_core::http::admission::Bounds;
use mote_core::time::Uptime;

use crate::input::Input;

/// Users that the table tells apart.
const USERS: u32 = 8;
/// Calls that one has saved up.
const SAVED: u32 = 2000;
const PLACES: [Place; 6] =
    [Place::Line, Place::Large, Place::Answer, Place::Long, Place::Listener, Place::LongAnswer];

struct Run {
    users: Users,
    now: Uptime,
    joined: Vec<User>,
    /// Places taken: by whom, which.
    taken: Vec<(User, usize)>,
    all: [usize; 6],
    waiting: Vec<(User, Turn)>,
    turns: u32,
}

impl Run {
    fn take(&mut self, user: User, place: usize) {
        let held = |one: &&(User, usize)| one.1 == place;
        let free = self.all[place] - self.taken.iter().filter(held).count();
        let own = self.taken.iter().filter(held).filter(|one| one.0 == user).count();
        let expected = own < free;
        assert_eq!(self.users.take(user, PLACES[place]), expected, "{own} of {free}");
        if expected {
            self.taken.push((user, place));
        }
    }

    fn look(&mut self) {
        let (users, now) = (&mut self.users, self.now);
        let before = self.waiting.len();
        self.waiting.retain(|(user, turn)| users.wait(*user, *turn, now).is_some());
        self.turns += u32::try_from(before - self.waiting.len()).unwrap();
        let saved = USERS * SAVED;
        let earned = (self.now - Uptime::default()).as_millis() / 10 + 1;
        assert!(u128::from(self.turns) <= u128::from(saved) + earned, "{} turns", self.turns);
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let (what, which) = (input.byte(), input.byte());
        let at = usize::from(which) % self.joined.len().max(1);
        let user = self.joined.get(at).copied();
        match (what % 8, user) {
            (0, _) => {
                let user = self.users.join(u32::from(which % 12), self.now);
                self.joined.push(user);
            }
            (1, Some(user)) => {
                self.joined.swap_remove(at);
                self.users.leave(user);
            }
            (2 | 3, Some(user)) => self.take(user, usize::from(what / 8) % 6),
            (4, _) if !self.taken.is_empty() => {
                let (user, place) = self.taken.swap_remove(usize::from(which) % self.taken.len());
                self.users.give_back(user, PLACES[place]);
            }
            (5, Some(user)) => {
                // Up to a hundred at once: savings come to an end.
                for _ in 0..1 + u32::from(what / 8).pow(2) / 8 {
                    let turn = self.users.charge(user, self.now);
                    self.waiting.push((user, turn));
                }
            }
            (6, _) => self.now = self.now + Duration::from_millis(u64::from(which).pow(2)),
            (7, _) => {
                let Some(&(user, turn)) = self.waiting.first() else { return };
                if let Some(left) = self.users.wait(user, turn, self.now) {
                    self.now = self.now + left * USERS + Duration::from_nanos(64);
                    assert!(self.users.wait(user, turn, self.now).is_none(), "starves");
                }
            }
            _ => {}
        }
        self.look();
    }
}

/// One input.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let bounds = Bounds::of(usize::from(input.byte()) * 4);
    let Bounds { connections: _, line, large, answers, long, listeners } = bounds;
    let mut run = Run {
        users: Users::new(bounds),
        now: Uptime::default(),
        joined: Vec::new(),
        taken: Vec::new(),
        all: [line, large, answers, long, listeners, 1],
        waiting: Vec::new(),
        turns: 0,
    };
    for _ in 0..200 {
        if input.is_empty() {
            break;
        }
        run.step(&mut input);
    }
    let counts = |user: User| run.joined.iter().filter(|one| **one == user).count();
    let most = run.joined.iter().map(|user| counts(*user)).max().unwrap_or(0);
    assert_eq!(counts(run.users.largest()), most);
}
