//! Instructions of the same call while the number of other resources grows.

use std::any::Any;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use mote_tests::conform::exec::{Exec, Running, plain};
use mote_tests::cost::{ALWAYS, Row};

use crate::bytes::{World, guest_listener, idle};
use crate::calls::{Counted, run};
use crate::steps;

pub(crate) const TEXT: &str = "\
## Calls while others are connected

A column is the number of the others. They do not change the cost of a call.";

const EVENT: &str = r#"{"type":"config","metadata":{"key":"user.x","old_value":"","value":"y"}}"#;

pub(crate) fn all(counted: &Counted) -> Vec<Row> {
    let mut rows = vec![beside_clients(counted)];
    rows.extend(beside_listeners(counted));
    rows.push(beside_commands(counted));
    // This comes last, because all operations act when their time limit expires.
    rows.push(beside_operations(counted));
    rows
}

fn index(world: &World) {
    assert_eq!(world.pair.ask("GET", "/").0, 200);
}

fn config(world: &World) {
    assert_eq!(world.pair.ask("GET", "/1.0/config/user.greeting"), (200, "hello".into()));
}

fn beside<T>(
    counted: &Counted,
    steps: Vec<usize>,
    make: impl Fn(&World) -> T,
    mut measure: impl FnMut(&mut Vec<T>),
) {
    let mut others = Vec::new();
    for step in [vec![0], steps].concat() {
        while others.len() < step {
            others.push(make(&counted.world));
        }
        measure(&mut others);
    }
}

fn beside_clients(counted: &Counted) -> Row {
    let mut cost = Vec::new();
    beside(
        counted,
        steps(100, 100),
        |world| idle(&world.pair),
        |others| {
            cost.push((others.len(), counted.of(20, index)));
        },
    );
    Row { name: "`GET /` beside idle guest clients", note: "256 at most", cost, held: ALWAYS }
}

fn beside_listeners(counted: &Counted) -> [Row; 3] {
    let (mut local, mut asked, mut heard) = (Vec::new(), Vec::new(), Vec::new());
    let mut unheard = 0;
    beside(
        counted,
        steps(64, 64),
        |world| guest_listener(&world.pair),
        |others| {
            let many = others.len();
            local.push((many, counted.of(20, index)));
            asked.push((many, counted.of(3, config)));
            let cost = counted.of(10, |world| {
                assert_eq!(world.client.ask("POST", "/1.0/events", EVENT).unwrap().status, 200);
                others.iter_mut().for_each(hear);
            });
            match many {
                0 => unheard = cost,
                _ => heard.push((many, cost.saturating_sub(unheard) / many as u64)),
            }
        },
    );
    [
        Row {
            name: "`GET /` beside guest listeners",
            note: "who waits costs nothing",
            cost: local,
            held: ALWAYS,
        },
        Row {
            name: "`GET /1.0/config/KEY` beside guest listeners",
            note: "the same",
            cost: asked,
            held: ALWAYS,
        },
        Row {
            name: "an event, for each of its listeners",
            note: "without what the host's request costs; the text is shared, not copied",
            cost: heard,
            held: 64..usize::MAX,
        },
    ]
}

fn hear(listener: &mut UnixStream) {
    let mut line = [0; 512];
    let mut have = 0;
    while have == 0 || line[have - 1] != b'\n' {
        have += listener.read(&mut line[have..]).unwrap();
    }
}

/// Operations act 5 s after their start and disappear after 10 s. Creating a thousand takes longer.
fn beside_operations(counted: &Counted) -> Row {
    let cost = steps(100, 100).into_iter().filter_map(|many| Some((many, among(counted, many)?)));
    let note = "the list is walked";
    let cost = cost.collect();
    Row { name: "the host's `GET` of an operation beside others", note, cost, held: 0..1000 }
}

/// Returns the instructions of a request for the newest of `many` operations. `None` if other
/// operations acted during every attempt, as on a busy machine.
fn among(counted: &Counted, many: usize) -> Option<u64> {
    const REST: Duration = Duration::from_secs(5);
    for _ in 0..4 {
        let begun = Instant::now();
        let request = plain(&["true"]);
        let operations: Vec<_> =
            (0..many).map(|_| Exec::ask(&counted.world.client, &request).unwrap()).collect();
        let newest = &operations.last()?.operation;
        let cost = counted.of(10, |world| drop(world.client.get(newest).unwrap()));
        let rested = begun.elapsed() < REST;
        std::thread::sleep((2 * REST).saturating_sub(begun.elapsed()));
        if rested {
            return Some(cost);
        }
    }
    println!("a busy machine: no figure for {many} operations");
    None
}

fn beside_commands(counted: &Counted) -> Row {
    let mut cost = Vec::new();
    beside(
        counted,
        steps(100, 10),
        |world| -> Box<dyn Any> {
            Box::new(Running::start(&world.client, &plain(&["cat"])).unwrap())
        },
        |others| {
            if !others.is_empty() {
                let one = counted.once(|world| drop(run(world, &["true"], b"")));
                cost.push((others.len(), one));
            }
        },
    );
    Row {
        name: "a command, `true`, beside others that run",
        note: "almost all of it is four TLS handshakes",
        cost,
        held: ALWAYS,
    }
}
