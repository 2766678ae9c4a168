//! Operations: ids, times, secrets and their JSON. Invariants: ids are UUIDs with the time and all
//! random bits, times equal those of chrono, the JSON has the input's values, and a secret
//! equals only itself.

use chrono::{DateTime, Datelike};
use mote_core::hostapi::operation::{
    Operation, State, same_secret, write, write_async, write_id, write_return,
};
use mote_core::json::Value;
use mote_core::time::Timestamp;
use serde_json::Value as Theirs;

use crate::prelude::*;

fn id(flavour: Flavour, now: (u64, u32), random: [u8; 16]) -> String {
    let mut out = String::new();
    write_id(&mut out, flavour, now, random).unwrap();
    let parts: Vec<&str> = out.split('-').collect();
    assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
    let number = u128::from_str_radix(&parts.concat(), 16).unwrap();
    let given = u128::from_be_bytes(random);
    let (version, millis) = (number >> 76 & 15, u64::try_from(number >> 80).unwrap());
    assert_eq!(number >> 62 & 3, 2);
    // 62 random bits follow the variant, and 12 the version.
    assert_eq!(number & ((1 << 62) - 1), given & ((1 << 62) - 1));
    assert_eq!(number >> 64 & 0xfff, given >> 64 & 0xfff);
    if flavour == Flavour::Lxd {
        assert_eq!(version, 7);
        let expected = now.0.wrapping_mul(1000).wrapping_add(u64::from(now.1 / 1_000_000));
        assert_eq!(millis, expected & ((1 << 48) - 1));
    } else {
        assert_eq!((version, number >> 80), (4, given >> 80));
    }
    out
}

/// Seconds of 400 years, after which the calendar repeats.
const CYCLE: u64 = 146_097 * 86_400;

fn time(seconds: u64, nanoseconds: u32) -> String {
    let shown = Timestamp(seconds, nanoseconds).to_string();
    let within = (seconds % CYCLE).cast_signed();
    let theirs = DateTime::from_timestamp(within, nanoseconds).expect("a time");
    let year = theirs.year().cast_unsigned() as u64 + seconds / CYCLE * 400;
    assert_eq!(shown, format!("{year:04}-{}Z", theirs.format("%m-%dT%H:%M:%S%.9f")));
    shown
}

fn json(flavour: Flavour, operation: &Operation<'_>, path: &str) {
    let document = Document::new(0, |json| write_async(json, flavour, path, operation));
    let whole: Theirs = serde_json::from_str(document.value().raw()).unwrap();
    assert_eq!((&whole["type"], &whole["operation"]), (&"async".into(), &path.into()));
    let inner = Document::new(0, |json| write(json, flavour, operation));
    let inner: Theirs = serde_json::from_str(inner.value().raw()).unwrap();
    assert_eq!(whole["metadata"], inner);
    let (name, code) = operation.state.name();
    assert_eq!((&inner["status"], &inner["status_code"]), (&name.into(), &code.into()));
    assert_eq!((&inner["id"], &inner["err"]), (&operation.id.into(), &operation.error.into()));
    let (seconds, nanoseconds) = operation.created;
    assert_eq!(inner["created_at"], time(seconds, nanoseconds));
    let metadata: Theirs = serde_json::from_str(operation.metadata.raw()).unwrap();
    assert_eq!(inner["metadata"], metadata);
    assert_eq!(operation.state.is_final(), code >= 200);
}

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let (flavour, random) = (input.flavour(), input.array());
    let mut moment = || (input.long(), input.word() % 1_000_000_000);
    let (created, updated) = (moment(), moment());
    time(updated.0, updated.1);
    let id = id(flavour, created, random);
    let states = [State::Running, State::Cancelling, State::Success, State::Failure];
    let state = states[usize::from(input.byte() % 4)];
    let code = i32::from_be_bytes(input.array());
    let ended = Document::new(0, |json| write_return(json, code));
    assert_eq!(ended.value().raw(), format!("{{\"return\":{code}}}"));
    let (error, one, other) = (input.text(), input.bytes(), input.bytes());
    let metadata = Value::parse(input.0).ok().filter(|value| {
        // Numbers beyond serde_json's range are JSON too.
        serde_json::from_str::<Theirs>(value.raw()).is_ok()
    });
    let metadata = metadata.unwrap_or(ended.value());
    let operation = Operation { id: &id, created, updated, state, metadata, error };
    json(flavour, &operation, error);
    assert_eq!(same_secret(one, other), one == other);
    assert!(same_secret(one, one));
}
