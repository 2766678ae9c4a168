//! Instructions that the agent executes for each kind of call.

use mote_tests::conform::exec::{Running, plain};
use mote_tests::conform::wire::TIMEOUT;
use mote_tests::cost::callgrind::Counter;
use mote_tests::cost::{ALWAYS, Row};
use mote_tests::{Pair, Scratch};

use crate::bytes::World;

pub(crate) const TEXT: &str = "\
## Instructions

User-mode instructions of the agent's process, counted by callgrind, which emulates a CPU with AES and AVX2 and without SHA and
ADX. The kernel, the host and commands are not included.";

const MIB: usize = 1 << 20;

const MOVED: &str = "without what `true` costs; about: it depends on how much comes at a time";

pub(crate) struct Counted {
    pub(crate) world: World,
    counter: Counter,
}

impl Counted {
    pub(crate) fn new() -> Self {
        let counter = Counter::new(Scratch::new());
        let pair = Pair::start_by(&counter.by(), "lxd", &["user.greeting=hello"]);
        Self { world: World::new(pair), counter }
    }

    /// Returns the instructions of one round. The first round does not count.
    pub(crate) fn of(&self, times: u64, mut action: impl FnMut(&World)) -> u64 {
        action(&self.world);
        self.counter.of(self.world.pid(), times, || action(&self.world))
    }

    /// Returns the instructions of a single round, for actions that are long enough to be precise.
    pub(crate) fn once(&self, action: impl FnOnce(&World)) -> u64 {
        self.counter.once(self.world.pid(), || action(&self.world))
    }
}

pub(crate) fn run(world: &World, command: &[&str], input: &[u8]) -> Vec<u8> {
    let client = &world.client;
    let mut running = Running::start(client, &plain(command)).unwrap();
    let mut control = running.control;
    for piece in input.chunks(16 * 1024) {
        running.stdin.binary(piece).unwrap();
    }
    running.stdin.barrier().unwrap();
    let (out, err) = (running.out.as_mut().unwrap(), running.err.as_mut().unwrap());
    let output = out.output().unwrap();
    assert!(err.output().unwrap().is_empty());
    // Polling would be counted, and its number depends on the machine's speed.
    let wait = format!("{}/wait?timeout=20", running.exec.operation);
    let ended = client.get(&wait).unwrap();
    assert_eq!(ended["metadata"]["return"], 0, "{ended}");
    control.within(TIMEOUT).close().unwrap();
    output
}

pub(crate) fn all(counted: &Counted) -> Vec<Row> {
    let one = |name, note, cost| Row { name, note, cost: vec![(1, cost)], held: ALWAYS };
    let mut rows = Vec::new();
    let index = counted.of(30, |world| assert_eq!(world.pair.ask("GET", "/").0, 200));
    rows.push(one("`GET /` on devlxd", "a connection each", index));
    let config = counted.of(5, |world| {
        let answer = world.pair.ask("GET", "/1.0/config/user.greeting");
        assert_eq!(answer, (200, "hello".into()));
    });
    rows.push(one(
        "`GET /1.0/config/KEY` on devlxd",
        "with a resumed TLS call to the host",
        config,
    ));
    rows.extend(host_calls(counted, one));
    rows
}

fn host_calls(counted: &Counted, one: impl Fn(&'static str, &'static str, u64) -> Row) -> [Row; 7] {
    let ask = |world: &World, method: &str, target: &str, body: &str| {
        assert_eq!(world.client.ask(method, target, body).unwrap().status, 200);
    };
    let info = counted.of(30, |world| ask(world, "GET", "/1.0", ""));
    let called = counted.of(2, |world| {
        let mut wire = world.client.connect().unwrap();
        assert_eq!(wire.ask("GET", "/1.0", "", b"").unwrap().status, 200);
    });
    let told = counted.world.client.host_info().unwrap().to_string();
    let put = counted.of(3, |world| ask(world, "PUT", "/1.0", &told));
    let event = r#"{"type":"config","metadata":{"key":"user.x","old_value":"","value":"y"}}"#;
    let post = counted.of(30, |world| ask(world, "POST", "/1.0/events", event));
    let command = counted.once(|world| assert!(run(world, &["true"], b"").is_empty()));
    let out = counted.once(|world| {
        let output = run(world, &["head", "-c", "1048576", "/dev/zero"], b"");
        assert_eq!(output.len(), MIB);
    });
    let input = vec![0; MIB];
    let into = counted.once(|world| {
        let output = run(world, &["sh", "-c", "cat >/dev/null"], &input);
        assert!(output.is_empty());
    });
    [
        one("the host's `GET /1.0`", "on a connection that is there", info),
        one("the host's `GET /1.0` with its connection", "a full handshake", called),
        one("the host's `PUT /1.0`", "with a call back to it", put),
        one("an event that nobody hears", "the host's request on a connection that is there", post),
        one("a command, `true`", "with five requests, four of them on new connections", command),
        unsteady(one("1 MiB out of a command", MOVED, out.saturating_sub(command))),
        unsteady(one("1 MiB into a command", MOVED, into.saturating_sub(command))),
    ]
}

/// Removes the budget: the size of each piece depends on the scheduler.
fn unsteady(row: Row) -> Row {
    Row { held: 0..0, ..row }
}
