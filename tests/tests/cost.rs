//! Cost per resource in the shipped agent: memory with a growing number of connections, commands
//! and sessions, and after their end. Limited by `tests/budgets/cost`, listed in
//! `docs/results/cost.md`.
//!
//! `MOTE_RECORD=1` writes the budget, `MOTE_LONG=1` also measures 1,000 where that takes minutes,
//! and `MOTE_WRITE_DOCS=1` does that and writes the page.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::any::Any;
use std::os::fd::AsRawFd;

use mote_tests::attack::more_descriptors;
use mote_tests::conform::prelude::*;
use mote_tests::conform::sftp::Sftp;
use mote_tests::cost::{Budget, Row, anonymous};
use mote_tests::pages::grouped;
use mote_tests::sftp::{Session, Text, bytes, kind, open};

const PAGE: &str = include_str!("../src/cost.md");

fn render(rows: &[Row]) -> String {
    let counts = rows.iter().flat_map(|row| row.cost.iter().map(|(count, _)| *count));
    let counts: BTreeSet<_> = counts.collect();
    let titles: Vec<_> = counts.iter().map(|count| grouped(*count as u64)).collect();
    let titles = markdown::numbers(titles.iter().map(String::as_str));
    let head = [markdown::texts(["bytes for each"]), titles, markdown::texts([""])].concat();
    let rows = rows.iter().map(|row| {
        let cost = |count| row.cost.iter().find(|(at, _)| at == count);
        let cell = |count| cost(count).map_or_else(|| "-".into(), |(_, cost)| grouped(*cost));
        let costs = counts.iter().map(cell).collect();
        [vec![row.name.to_owned()], costs, vec![row.note.to_owned()]].concat()
    });
    format!("{PAGE}{}", markdown::table(&head, rows))
}

#[test]
fn no_cost_exceeds_its_budget() {
    more_descriptors();
    // Run in parallel, because each resource has its own agent, which mostly waits.
    let mut rows: Vec<_> = thread::scope(|scope| {
        let rows: Vec<_> = THINGS.iter().map(|thing| scope.spawn(|| thing.row())).collect();
        rows.into_iter().map(|row| row.join().unwrap()).collect()
    });
    rows.extend([sftp_server(), sftp_handle()]);
    rows.iter().for_each(|row| println!("{}: {:?}", row.name, row.cost));
    pages::write("results/cost.md", &render(&rows));
    Budget { file: "cost", tolerance: |_, _| 10 }.hold(&rows);
}

fn set(variable: &str) -> bool {
    std::env::var_os(variable).is_some()
}

/// Returns the page's steps up to `most`, or fewer in a short run.
fn steps(most: usize, short: usize) -> Vec<usize> {
    let long = set("MOTE_LONG") || set("MOTE_WRITE_DOCS");
    let most = if long { most } else { most.min(short) };
    let mut steps: Vec<_> = [1, 10, 100, 1000].into_iter().filter(|step| *step <= most).collect();
    if !steps.contains(&most) {
        steps.push(most);
    }
    steps
}

/// Bytes that may remain in use after the end, in addition to 3 %.
const SLACK: u64 = 256 * 1024;

/// Numbers of items with which the cost of one item is precise enough for a budget.
const MANY: std::ops::Range<usize> = 64..usize::MAX;

struct World {
    pair: Pair,
    client: Client,
    _port: Terminal,
}

impl World {
    fn new() -> Self {
        let pair = Pair::start("lxd", &[]);
        // Without a status port the agent would look for one every second.
        let mut port = Terminal::open(80, 25);
        let links = pair.scratch.0.join("root/dev/virtio-ports");
        fs::create_dir_all(&links).unwrap();
        let path = format!("/proc/{}/fd/{}", std::process::id(), port.theirs.as_raw_fd());
        symlink(path, links.join("com.canonical.lxd")).unwrap();
        port.until("STARTED");
        let client = pair.client();
        client.announce();
        port.until("CONNECTED");
        Self { pair, client, _port: port }
    }
}

/// A resource that is counted; released when dropped.
struct Thing {
    name: &'static str,
    note: &'static str,
    most: usize,
    /// Maximum number without `MOTE_LONG`.
    short: usize,
    /// Time after which the agent has released an item that was dropped.
    linger: Duration,
    make: fn(&World) -> Box<dyn Any>,
}

const fn thing(
    (name, note): (&'static str, &'static str),
    (most, short): (usize, usize),
    linger: u64,
    make: fn(&World) -> Box<dyn Any>,
) -> Thing {
    Thing { name, note, most, short, linger: Duration::from_secs(linger), make }
}

const THINGS: &[Thing] = &[
    thing(
        ("idle guest client", "256 at most; then the longest idle one is closed"),
        (100, 100),
        1,
        |world| Box::new(idle(&world.pair)),
    ),
    thing(
        ("guest event listener", "64 at most; they do not count as clients"),
        (64, 64),
        1,
        |world| Box::new(world.pair.listen().unwrap()),
    ),
    thing(
        ("host event listener", "1,024 at most; a TLS connection each"),
        (100, 100),
        3,
        |world| Box::new(world.client.listen().unwrap()),
    ),
    // The agent keeps an operation for 5 s after its end.
    thing(
        ("running command", "four TLS connections; 4,096 connections at most"),
        (1000, 100),
        8,
        |world| Box::new(Running::start(&world.client, &plain(&["cat"])).unwrap()),
    ),
    // The agent keeps an operation for 5 s without a connected socket, and for 5 s after its end.
    thing(("operation", "4,096 at most; kept for 5 s after its end"), (1000, 1000), 12, |world| {
        Box::new(Exec::ask(&world.client, &plain(&["true"])).unwrap())
    }),
    thing(
        ("SFTP session, in the agent", "64 at most; a TLS connection and a relay"),
        (64, 64),
        3,
        |world| Box::new(Sftp::open(&world.client).unwrap()),
    ),
];

fn idle(pair: &Pair) -> UnixStream {
    let mut stream = pair.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = [0; 512];
    assert!(stream.read(&mut answer).unwrap() > 0);
    stream
}

impl Thing {
    fn row(&self) -> Row {
        let world = World::new();
        let pid = world.pair.agent.0.id();
        // Allocations at the first use remain, so they do not count.
        drop((self.make)(&world));
        thread::sleep(self.linger);
        let before = anonymous(pid);
        let mut held = Vec::new();
        let mut cost = Vec::new();
        for step in steps(self.most, self.short) {
            held.resize_with(step, || (self.make)(&world));
            cost.push((step, settled(pid).saturating_sub(before) / step as u64));
        }
        let peak = anonymous(pid) - before;
        drop(held);
        let slack = SLACK + peak * 3 / 100;
        let mut left = 0;
        until("memory to come back", self.linger + Duration::from_secs(20), || {
            left = anonymous(pid).saturating_sub(before);
            left < slack
        });
        println!("{}: {before} bytes before, {peak} more with all, {left} after", self.name);
        Row { name: self.name, note: self.note, cost, held: MANY }
    }
}

/// Returns the least memory within 1.5 s: the agent's allocator keeps freed blocks for a second,
/// and how many depends on timing.
fn settled(pid: u32) -> u64 {
    let readings = (0..30).map(|_| {
        thread::sleep(Duration::from_millis(50));
        anonymous(pid)
    });
    readings.min().unwrap_or(0)
}

fn sftp_server() -> Row {
    let scratch = Scratch::new();
    let mut all = Vec::new();
    let mut cost = Vec::new();
    for step in steps(64, 64) {
        all.resize_with(step, || Session::start(&scratch.0));
        let bytes: u64 = all.iter().map(|session| anonymous(session.server.0.id())).sum();
        cost.push((step, bytes / step as u64));
    }
    Row { name: "SFTP session, its server", note: "all of that process", cost, held: MANY }
}

fn sftp_handle() -> Row {
    let scratch = Scratch::new();
    fs::write(scratch.0.join("file"), b"some bytes").unwrap();
    let path = scratch.0.join("file");
    let mut session = Session::start(&scratch.0);
    let pid = session.server.0.id();
    let first = session.open(bytes(&path), open::READ);
    close(&mut session, &first);
    let before = anonymous(pid);
    let mut handles = Vec::new();
    let mut cost = Vec::new();
    for step in steps(100, 100) {
        handles.resize_with(step, || session.open(bytes(&path), open::READ));
        cost.push((step, anonymous(pid).saturating_sub(before) / step as u64));
    }
    handles.iter().for_each(|handle| close(&mut session, handle));
    assert!(anonymous(pid) < before + SLACK);
    // All handles fit in one page, so the cost of one handle has no budget.
    Row { name: "open SFTP handle", note: "65,536 of a session at most", cost, held: 0..0 }
}

fn close(session: &mut Session, handle: &[u8]) {
    session.done(kind::CLOSE, &[Text(handle)]);
}
