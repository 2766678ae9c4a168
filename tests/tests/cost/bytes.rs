//! Memory of the agent with a growing number of connections, commands and sessions, and after their
//! end.

use std::any::Any;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use mote_tests::conform::exec::{Exec, Running, plain};
use mote_tests::conform::sftp::Sftp;
use mote_tests::conform::wire::Wire;
use mote_tests::cost::{Row, anonymous};
use mote_tests::sftp::{Session, bytes as path_bytes, open};
use mote_tests::{Client, Pair, Scratch, Terminal, wait};

use crate::steps;

pub(crate) const TEXT: &str = "\
## Bytes

Growth of the agent's anonymous memory (`/proc/PID/smaps_rollup`), divided by the number. With few, most of it is one page. When
all are gone, at most 256 KiB and 3 % remain (asserted).";

/// Tolerance for memory that is not returned, bytes; 3 % more is accepted.
const SLACK: u64 = 256 * 1024;

/// Counts from which the cost of one is precise enough.
const MANY: std::ops::Range<usize> = 64..usize::MAX;

pub(crate) struct World {
    pub(crate) pair: Pair,
    pub(crate) client: Client,
    _port: Terminal,
}

impl World {
    pub(crate) fn new(pair: Pair) -> Self {
        // Without a status port the agent would look for one every second.
        let mut port = Terminal::open(80, 25);
        let links = pair.scratch.0.join("root/dev/virtio-ports");
        std::fs::create_dir_all(&links).unwrap();
        let path = format!("/proc/{}/fd/{}", std::process::id(), port.theirs.as_raw_fd());
        symlink(path, links.join("com.canonical.lxd")).unwrap();
        port.until("STARTED");
        let client = pair.client();
        client.announce();
        port.until("CONNECTED");
        Self { pair, client, _port: port }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pair.agent.0.id()
    }
}

/// A resource that is counted; released when dropped.
struct Thing {
    name: &'static str,
    note: &'static str,
    most: usize,
    /// Upper bound without `MOTE_LONG`.
    short: usize,
    /// Time after which the agent has released one.
    linger: Duration,
    make: fn(&World) -> Box<dyn Any>,
}

const THINGS: &[Thing] = &[
    Thing {
        name: "idle guest client",
        note: "256 at most; then the longest resting gives way",
        most: 100,
        short: 100,
        linger: Duration::from_secs(1),
        make: |world| Box::new(idle(&world.pair)),
    },
    Thing {
        name: "guest event listener",
        note: "64 at most; they do not count as clients",
        most: 64,
        short: 64,
        linger: Duration::from_secs(1),
        make: |world| Box::new(guest_listener(&world.pair)),
    },
    Thing {
        name: "host event listener",
        note: "1,024 at most; a TLS connection each",
        most: 100,
        short: 100,
        linger: Duration::from_secs(3),
        make: |world| Box::new(host_listener(&world.client)),
    },
    Thing {
        name: "running command",
        note: "four TLS connections; 4,096 connections at most",
        most: 1000,
        short: 100,
        // The agent keeps an operation for 5 s after its end.
        linger: Duration::from_secs(8),
        make: |world| Box::new(Running::start(&world.client, &plain(&["cat"])).unwrap()),
    },
    Thing {
        name: "operation",
        note: "4,096 at most; kept for 5 s after its end",
        most: 1000,
        short: 1000,
        // 5 s without a connected socket, then 5 s as an ended operation.
        linger: Duration::from_secs(12),
        make: |world| Box::new(Exec::ask(&world.client, &plain(&["true"])).unwrap()),
    },
    Thing {
        name: "SFTP session, in the agent",
        note: "64 at most; a TLS connection and a relay",
        most: 64,
        short: 64,
        linger: Duration::from_secs(3),
        make: |world| Box::new(Sftp::open(&world.client).unwrap()),
    },
];

/// A guest client that keeps its connection after an answer.
pub(crate) fn idle(pair: &Pair) -> UnixStream {
    let mut stream = pair.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = [0; 512];
    assert!(stream.read(&mut answer).unwrap() > 0);
    stream
}

pub(crate) fn guest_listener(pair: &Pair) -> UnixStream {
    let (head, reader) = pair.get("/1.0/events");
    assert!(head.starts_with("HTTP/1.1 200"));
    reader.into_inner()
}

fn host_listener(client: &Client) -> Wire {
    let mut wire = client.connect().unwrap();
    wire.send(b"GET /1.0/events HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert!(wire.until(b"\r\n\r\n").unwrap().starts_with(b"HTTP/1.1 200"));
    wire
}

pub(crate) fn all() -> Vec<Row> {
    // Each has its own agent, which mostly waits.
    std::thread::scope(|scope| {
        let rows: Vec<_> = THINGS.iter().map(|thing| scope.spawn(|| thing.row())).collect();
        let mut rows: Vec<_> = rows.into_iter().map(|row| row.join().unwrap()).collect();
        rows.extend([sftp_server(), sftp_handle()]);
        rows
    })
}

impl Thing {
    fn row(&self) -> Row {
        let world = World::new(Pair::start("lxd", &[]));
        let pid = world.pid();
        // Allocations at the first use remain, so they do not count.
        drop((self.make)(&world));
        std::thread::sleep(self.linger);
        let before = anonymous(pid);
        let mut held = Vec::new();
        let mut cost = Vec::new();
        for step in steps(self.most, self.short) {
            while held.len() < step {
                held.push((self.make)(&world));
            }
            cost.push((step, anonymous(pid).saturating_sub(before) / step as u64));
        }
        let peak = anonymous(pid) - before;
        drop(held);
        let slack = SLACK + peak * 3 / 100;
        let mut left = 0;
        wait("memory to come back", self.linger + Duration::from_secs(20), || {
            left = anonymous(pid).saturating_sub(before);
            (left < slack).then_some(())
        });
        println!("{}: {before} bytes before, {peak} more with all, {left} after", self.name);
        Row { name: self.name, note: self.note, cost, held: MANY }
    }
}

/// Measures the SFTP servers, which are worker processes.
fn sftp_server() -> Row {
    let scratch = Scratch::new();
    let mut all = Vec::new();
    let mut cost = Vec::new();
    for step in steps(64, 64) {
        while all.len() < step {
            all.push(Session::start(&scratch.0));
        }
        let bytes: u64 = all.iter().map(|session| anonymous(session.server.0.id())).sum();
        cost.push((step, bytes / step as u64));
    }
    Row { name: "SFTP session, its server", note: "all of that process", cost, held: MANY }
}

fn sftp_handle() -> Row {
    let scratch = Scratch::new();
    std::fs::write(scratch.0.join("file"), b"some bytes").unwrap();
    let path = scratch.0.join("file");
    let mut session = Session::start(&scratch.0);
    let pid = session.server.0.id();
    let first = session.open(path_bytes(&path), open::READ);
    close(&mut session, &first);
    let before = anonymous(pid);
    let mut handles = Vec::new();
    let mut cost = Vec::new();
    for step in steps(100, 100) {
        while handles.len() < step {
            handles.push(session.open(path_bytes(&path), open::READ));
        }
        cost.push((step, anonymous(pid).saturating_sub(before) / step as u64));
    }
    handles.iter().for_each(|handle| close(&mut session, handle));
    assert!(anonymous(pid) < before + SLACK);
    // One page holds all handles, so the cost of one has no budget.
    Row { name: "open SFTP handle", note: "65,536 of a session at most", cost, held: 0..0 }
}

fn close(session: &mut Session, handle: &[u8]) {
    use mote_tests::sftp::{Text, kind};
    session.done(kind::CLOSE, &[Text(handle)]);
}
