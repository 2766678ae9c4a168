//! Clients that come back, wait, listen and ask without end: whoever else comes is answered at once, and
//! no user takes what is another's.

use std::fs::{Permissions, set_permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use mote_tests::agent::{Pair, split};
use mote_tests::host::NAME;
use mote_tests::wait;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, getrlimit, getuid, setrlimit};
use rustix::thread::set_thread_uid;

/// A newcomer's patience.
const SOON: Duration = Duration::from_millis(100);
/// The same beside thousands who come back at once: a newcomer is behind a queue of them, and each costs the agent
/// 70 us. Before there were limits a user, it was more than 120 s.
const BESIDE_THOUSANDS: Duration = Duration::from_millis(1500);
/// How often a round may be spoilt by what else the machine does.
const ROUNDS: usize = 3;
/// Another user than the one that the tests run as.
const OTHER: u32 = 4711;

const GET: &[u8] = b"GET /1.0/config/user.foo HTTP/1.1\r\nHost: x\r\n\r\n";
const WAIT: &[u8] = b"GET /1.0/operations/x/wait HTTP/1.1\r\nHost: x\r\n\r\n";
const EVENTS: &[u8] = b"GET /1.0/events HTTP/1.1\r\nHost: x\r\n\r\n";

/// Ends a flood when dropped, also by a test that fails.
struct Ends<'f>(&'f AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// An agent whose socket every user may use.
fn pair() -> Pair {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
        .expect("more descriptors");
    let pair = Pair::start("lxd", &["user.foo=bar"]);
    let socket = pair.socket();
    set_permissions(&socket, Permissions::from_mode(0o666)).expect("the socket's mode");
    for folder in socket.ancestors().skip(1).take_while(|path| path.starts_with(&pair.scratch.0)) {
        set_permissions(folder, Permissions::from_mode(0o755)).expect("a folder's mode");
    }
    pair
}

/// Runs this as another user: the kernel tells the agent who connected. As ourselves if we are not root.
fn as_user<T: Send>(user: u32, act: impl FnOnce() -> T + Send) -> T {
    let act = move || {
        if getuid().is_root() && user != 0 {
            // Of this thread only, which ends.
            set_thread_uid(rustix::process::Uid::from_raw(user)).expect("another user");
        }
        act()
    };
    scope(|threads| threads.spawn(act).join().expect("no panic"))
}

/// True if the tests can play two users.
#[track_caller]
fn has_users() -> bool {
    let has = getuid().is_root();
    if !has {
        mote_tests::skipped("root, to play two users");
    }
    has
}

/// How long this process or thread was ready to run and waited for a CPU: what else the machine does, and what
/// an attacker's own loops take, which no agent can change.
fn waited(process: &str) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{process}/schedstat")).unwrap_or_default();
    let nanoseconds = text.split(' ').nth(1).and_then(|number| number.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

/// How long newcomers of a user take to connect, ask and get the answer: the median of each round, for
/// what needs the host and what does not.
fn newcomers(pair: &Pair, user: u32) -> [Duration; 2] {
    let agent = pair.agent.0.id().to_string();
    let one = |target: &str, expected: &str| {
        let waits = || [waited(&agent), waited("thread-self")];
        let (before, begun) = (waits(), Instant::now());
        let answer = pair.ask("GET", target);
        assert_eq!((answer.0, answer.1.trim_end()), (200, expected));
        let took = begun.elapsed();
        // One of them may have waited while the other did.
        let waits = waits().into_iter().zip(before).map(|(after, before)| after - before).max();
        took.saturating_sub(waits.unwrap_or_default())
    };
    let median = |target: &str, expected: &str| {
        let mut took: Vec<_> = (0..9).map(|_| one(target, expected)).collect();
        took.sort();
        println!("{target} of user {user}: {took:.1?}");
        took[took.len() / 2]
    };
    as_user(user, || [median("/", "[\"/1.0\"]"), median("/1.0/config/user.foo", "bar")])
}

/// Newcomers are answered soon in one of some rounds.
fn assert_soon(pair: &Pair, user: u32) {
    assert_within(SOON, pair, user);
}

/// The same with another time.
fn assert_within(time: Duration, pair: &Pair, user: u32) {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(newcomers(pair, user));
        if rounds.last().is_some_and(|round| round.iter().all(|median| *median < time)) {
            return;
        }
    }
    panic!("user {user}: {rounds:?}");
}

/// One that has said this.
fn said(pair: &Pair, bytes: &[u8]) -> UnixStream {
    let mut stream = pair.connect();
    // One that is refused may be closed at once.
    let _sent = stream.write_all(bytes);
    stream
}

/// The status of the answer; 0 if the connection ends without one.
fn status(mut stream: &UnixStream) -> u16 {
    let mut answer = [0; 512];
    let count = stream.read(&mut answer).unwrap_or(0);
    split(&String::from_utf8_lossy(&answer[..count])).0
}

/// Keeps so many connections open that say something at first and then each time they are looked at; who
/// is closed comes back. Counts how often that was.
fn keep_open(
    pair: &Pair,
    count: usize,
    first: &[u8],
    then: &[u8],
    done: &AtomicBool,
    back: &AtomicUsize,
) {
    let open = || {
        let stream = said(pair, first);
        stream.set_nonblocking(true).expect("a socket");
        stream
    };
    let mut all: Vec<_> = (0..count).map(|_| open()).collect();
    while !done.load(Ordering::Relaxed) {
        let mut looks: Vec<_> = all.iter().map(|one| PollFd::new(one, PollFlags::RDHUP)).collect();
        let _some = poll(&mut looks, Some(&Timespec { tv_sec: 0, tv_nsec: 1_000_000 }));
        let gone: Vec<_> = looks.iter().map(|look| !look.revents().is_empty()).collect();
        for (one, gone) in all.iter_mut().zip(gone) {
            if gone {
                back.fetch_add(1, Ordering::Relaxed);
                *one = open();
            } else if !then.is_empty() {
                let _sent = one.write_all(then);
            }
        }
    }
}

/// Newcomers beside connections that are opened again whenever they are closed.
fn beside_those_who_come_back(first: &[u8], then: &[u8]) {
    let pair = pair();
    let (done, back) = (AtomicBool::new(false), AtomicUsize::new(0));
    scope(|threads| {
        let flood = || keep_open(&pair, 4000, first, then, &done, &back);
        threads.spawn(flood);
        let _ends = Ends(&done);
        wait("the first to come back", SOON * 100, || {
            (back.load(Ordering::Relaxed) > 3000).then_some(())
        });
        assert_within(BESIDE_THOUSANDS, &pair, getuid().as_raw());
        assert_within(BESIDE_THOUSANDS, &pair, OTHER);
        let agent = pair.agent.0.id();
        let ran = std::fs::read_to_string(format!("/proc/{agent}/schedstat")).unwrap_or_default();
        println!("{back:?} came back; agent: {ran}");
    });
}

#[test]
fn newcomers_are_answered_beside_silent_connections_that_come_back() {
    beside_those_who_come_back(b"", b"");
}

#[test]
fn newcomers_are_answered_beside_heads_byte_by_byte() {
    beside_those_who_come_back(b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: ", b"x");
}

#[test]
fn newcomers_are_answered_beside_half_bodies_that_come_back() {
    let request = b"PATCH /1.0 HTTP/1.1\r\nHost: x\r\nContent-Length: 17\r\n\r\n{\"state\"";
    beside_those_who_come_back(request, b"");
}

#[test]
fn newcomers_are_answered_beside_operation_waits_and_another_user_may_wait_too() {
    let pair = pair();
    pair.host.ok(&["fault", NAME, "slow", "60000"]);
    let waiting: Vec<_> = (0..128).map(|_| said(&pair, WAIT)).collect();
    sleep(SOON * 5);
    pair.host.ok(&["fault", NAME, "none"]);
    assert_soon(&pair, getuid().as_raw());
    assert_soon(&pair, OTHER);
    // Those past the bound were refused.
    assert_eq!(status(waiting.last().expect("one")), 503);
    let mine = pair.ask("GET", "/1.0/operations/x/wait").0;
    let others = as_user(OTHER, || pair.ask("GET", "/1.0/operations/x/wait").0);
    if has_users() {
        assert_eq!((mine, others), (503, 403), "the other user has room; the host wants a token");
    }
}

#[test]
fn newcomers_are_answered_beside_event_listeners_and_another_user_may_listen_too() {
    let pair = pair();
    let mut listeners = Vec::new();
    let refused = loop {
        let one = said(&pair, EVENTS);
        match status(&one) {
            200 => listeners.push(one),
            refused => break refused,
        }
    };
    println!("{} listeners", listeners.len());
    assert_eq!(refused, 503);
    assert_soon(&pair, getuid().as_raw());
    if has_users() {
        assert_eq!(as_user(OTHER, || status(&said(&pair, EVENTS))), 200);
        assert_soon(&pair, OTHER);
    }
}

/// Asks again and again on kept connections, some requests ahead, as a user.
fn flood(pair: &Pair, user: u32, count: usize, done: &AtomicBool, answers: &AtomicUsize) {
    as_user(user, || {
        let ahead = GET.repeat(4);
        let open = || {
            let stream = said(pair, &ahead);
            stream.set_nonblocking(true).expect("a socket");
            stream
        };
        let mut all: Vec<_> = (0..count).map(|_| open()).collect();
        while !done.load(Ordering::Relaxed) {
            let mut looks: Vec<_> = all.iter().map(|one| PollFd::new(one, PollFlags::IN)).collect();
            let _some = poll(&mut looks, Some(&Timespec { tv_sec: 0, tv_nsec: 10_000_000 }));
            let ready: Vec<_> = looks.iter().map(|look| !look.revents().is_empty()).collect();
            for (one, _) in all.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
                let mut answer = [0; 4096];
                let count = one.read(&mut answer).unwrap_or(0);
                let text = String::from_utf8_lossy(&answer[..count]);
                let all = text.matches("HTTP/1.1 ").count();
                answers.fetch_add(text.matches("HTTP/1.1 200").count(), Ordering::Relaxed);
                match one.write_all(&GET.repeat(all)) {
                    Ok(()) if count > 0 => {}
                    Ok(()) | Err(_) => *one = open(),
                }
            }
        }
    });
}

/// Newcomers of one user beside calls without end of another.
fn beside_a_flood(count: usize, flooder: u32, newcomer: u32) {
    if !has_users() {
        return;
    }
    let pair = pair();
    let (done, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
    scope(|threads| {
        threads.spawn(|| flood(&pair, flooder, count, &done, &answers));
        let _ends = Ends(&done);
        // More than the host is asked at once after a rest.
        sleep(Duration::from_secs(4));
        let (before, begun) = (answers.load(Ordering::Relaxed), Instant::now());
        assert_soon(&pair, newcomer);
        sleep(Duration::from_secs(2));
        let rate = (answers.load(Ordering::Relaxed) - before) * 1000
            / usize::try_from(begun.elapsed().as_millis()).unwrap_or(1);
        println!("{count} connections of {flooder}: {before}, then {rate} a second");
    });
}

#[test]
fn newcomers_are_answered_beside_calls_without_end_of_another_user() {
    beside_a_flood(64, 0, OTHER);
}

#[test]
fn a_client_that_does_not_leave_is_closed_at_once() {
    let pair = pair();
    let stream = said(&pair, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let begun = Instant::now();
    assert_eq!(status(&stream), 200);
    // Closed in both directions, not only shut down.
    let mut look = [PollFd::new(&stream, PollFlags::empty())];
    let _closed = poll(&mut look, Some(&Timespec { tv_sec: 5, tv_nsec: 0 }));
    assert!(look[0].revents().contains(PollFlags::HUP));
    assert!(begun.elapsed() < SOON * 10, "{:?}", begun.elapsed());
}
