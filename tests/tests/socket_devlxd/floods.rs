//! Attacks on the socket by clients that reconnect when they are closed. The agent has 8 MiB,
//! including the kernel's memory for it. It survives, and answers other clients and root soon.
//!
//! `MOTE_SAMPLES=100` prints the figures of docs/explanation/security.md.

use mote_tests::attack::{Attack, Cgroup, Kind, become_user};
use mote_tests::prelude::*;
use rustix::process::getuid;

/// Numbers of connections: one attack leaves a few free, the other fills the kernel's queue.
const FEW: usize = 500;
const MANY: usize = 4000;
/// Limits for a new client next to these attacks on a busy machine, where it may be last in the
/// queue: 5 and 8 times the goals in docs/explanation/security.md.
const SOON: [(usize, Duration); 2] =
    [(FEW, Duration::from_millis(500)), (MANY, Duration::from_secs(2))];
/// Number of rounds. All but one may fail because of the machine's load.
const ROUNDS: usize = 3;
/// Limit of the agent's peak RSS, kB, as in docs/explanation/security.md. All attacks at once take
/// 4.9 MB on idle CPUs and 5.2 at load 30; the cgroup has 8 MiB.
const PEAK: u64 = 6000;
const OTHER: u32 = 4711;
/// The agent answers this target without the host, and the other one with the host.
const INDEX: &str = "/";
const CALL: &str = "/1.0/config/user.foo";
const BEGUN: Duration = Duration::from_secs(60);

/// An agent in its cgroup with a socket that every user may use.
struct Victim {
    // Fields are dropped in this order: the cgroup must be empty when it is removed.
    pair: Pair,
    cgroup: Cgroup,
}

impl Victim {
    fn start() -> Self {
        let (pair, cgroup) = Cgroup::with_agent();
        let socket = pair.socket();
        fs::set_permissions(&socket, Permissions::from_mode(0o666)).expect("the socket's mode");
        let above = socket.ancestors().skip(1);
        for folder in above.take_while(|path| path.starts_with(&pair.scratch.0)) {
            fs::set_permissions(folder, Permissions::from_mode(0o755)).expect("a folder's mode");
        }
        Self { pair, cgroup }
    }

    fn attacked(&self, kind: Kind, connections: usize, user: u32) -> Attack {
        let attack = Attack::start(&self.pair.socket(), kind, connections, user);
        until("the attack", BEGUN, || attack.opened() >= connections);
        attack
    }

    fn survived(mut self, attack: &str) {
        self.cgroup.survived(&mut self.pair, attack, PEAK);
    }
}

/// Returns how long this process or thread waited for a CPU, which no agent can change.
fn waited(process: &str) -> Duration {
    let text = fs::read_to_string(format!("/proc/{process}/schedstat")).unwrap_or_default();
    let nanoseconds = text.split(' ').nth(1).and_then(|number| number.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

/// Returns how long a new client waits for its answer, with and without waits for a CPU; `None` if
/// the agent closed the connection.
fn newcomer(pair: &Pair, target: &str) -> Option<[Duration; 2]> {
    let agent = pair.agent.0.id().to_string();
    let waits = || [waited(&agent), waited("thread-self")];
    let (before, begun) = (waits(), Instant::now());
    let answer = pair.ask("GET", target);
    let took = begun.elapsed();
    if answer.0 == 0 {
        return None;
    }
    let expected = if target == INDEX { "[\"/1.0\"]" } else { "bar" };
    assert_eq!((answer.0, answer.1.trim_end()), (200, expected));
    // Agent and client may have waited at the same time, so only the longer wait is subtracted.
    let waits = waits().into_iter().zip(before).map(|(after, before)| after - before).max();
    Some([took, took.saturating_sub(waits.unwrap_or_default())])
}

/// Number of new clients for figures, which include attacks by root; `None` for a short run.
fn samples() -> Option<usize> {
    std::env::var("MOTE_SAMPLES").ok()?.parse().ok()
}

/// Runs new clients of one user. Returns how many were closed without an answer, and the 99th
/// percentile of the other times, without CPU waits.
fn round(pair: &Pair, user: u32, target: &str) -> (usize, Duration) {
    let samples = samples().unwrap_or(10);
    become_user(user);
    let all: Vec<_> = (0..samples).filter_map(|_| newcomer(pair, target)).collect();
    let closed = samples - all.len();
    let [mut took, mut without] =
        [0, 1].map(|which| all.iter().map(|one| one[which]).collect::<Vec<_>>());
    took.sort();
    without.sort();
    let last = samples - 1 - samples / 100;
    let at = |of: &[Duration], index: usize| of.get(index).copied().unwrap_or(Duration::MAX);
    let (half, most, alone) =
        (at(&took, samples / 2), at(&took, last), at(&without, last.saturating_sub(closed)));
    println!(
        "GET {target} of {user}: p50 {half:.1?}, p99 {most:.1?}; {alone:.1?}, {closed} closed"
    );
    (closed, alone)
}

impl Victim {
    /// Checks that in at least one round, all new clients of `user` are answered during an attack,
    /// within the limit for that many connections. Root must be answered in every round.
    fn answers(&self, soon: (usize, Duration), user: u32, attacker: u32, target: &str) {
        let limit = patient(soon.1);
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let round = thread::scope(|threads| {
                threads.spawn(|| round(&self.pair, user, target)).join().expect("no panic")
            });
            if round.0 == 0 && round.1 < limit {
                return;
            }
            assert!(round.0 == 0 || (user == 0) == (attacker == 0), "{} closed", round.0);
            rounds.push(round);
        }
        panic!("GET {target} of {user}: {rounds:?}, not within {limit:?}");
    }
}

/// Checks an attack by another user, and for figures also by root.
fn withstands(kind: Kind) {
    let users = if getuid().is_root() { vec![OTHER, 0] } else { vec![getuid().as_raw()] };
    let attackers = if samples().is_some() { users.len() } else { 1 };
    for attacker in users.iter().copied().take(attackers) {
        let victim = Victim::start();
        if kind == Kind::Waits {
            victim.pair.host.ok(&["fault", NAME, "slow", "60000"]);
        }
        let mut attacks = Vec::new();
        for soon in SOON {
            let more = soon.0 - attacks.iter().map(|(count, _)| count).sum::<usize>();
            attacks.push((more, victim.attacked(kind, more, attacker)));
            println!("{kind:?} by {attacker}, {} connections", soon.0);
            for user in users.iter().copied() {
                victim.answers(soon, user, attacker, INDEX);
            }
        }
        if attacker != 0 && kind != Kind::Waits && getuid().is_root() {
            // Root's calls do not wait for those of other users.
            victim.answers(SOON[1], 0, attacker, CALL);
        }
        drop(attacks);
        victim.pair.host.ok(&["fault", NAME, "none"]);
        victim.survived(&format!("{kind:?} by {attacker}"));
    }
}

#[test]
fn newcomers_are_answered_beside_an_attack_of_each_kind() {
    Kind::ALL.iter().copied().for_each(withstands);
}

fn survives_all(users: u32) {
    let victim = Victim::start();
    let kinds = if users == 1 { Kind::ALL.len() } else { 1 };
    let each = MANY / (kinds * users as usize);
    let all = (0..users).flat_map(|user| {
        let kinds = Kind::ALL.iter().cycle().skip(user as usize).take(kinds);
        kinds.map(move |kind| (*kind, OTHER + user))
    });
    let attacks: Vec<_> = all.map(|(kind, user)| victim.attacked(kind, each, user)).collect();
    thread::sleep(Duration::from_secs(2));
    for user in [0, OTHER + 100] {
        victim.answers((MANY, 2 * SOON[1].1), user, OTHER, INDEX);
    }
    drop(attacks);
    victim.survived(&format!("all attacks at once by {users}"));
}

mote_tests::tests! {
    survives_all_attacks_of_one_user: survives_all(1),
    survives_all_attacks_of_twelve_users: survives_all(12),
}

#[test]
fn answers_root_next_to_waits_of_twelve_users() {
    let victim = Victim::start();
    let pair = &victim.pair;
    pair.host.ok(&["fault", NAME, "slow", "60000"]);
    let _attacks: Vec<_> =
        (0..12).map(|user| victim.attacked(Kind::Waits, 92, OTHER + user)).collect();
    thread::sleep(Duration::from_millis(500));
    pair.host.ok(&["fault", NAME, "none"]);
    victim.answers(SOON[0], 0, OTHER, INDEX);
    if getuid().is_root() {
        victim.answers(SOON[0], 0, OTHER, CALL);
        assert_eq!(pair.ask("GET", "/1.0/operations/x/wait").0, 403, "the host wants a token");
    }
}
