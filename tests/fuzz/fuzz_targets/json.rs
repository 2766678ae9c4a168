//! JSON from arbitrary bytes. What must hold: no panic, checked or not; the verdict is that of
//! serde_json (within our depth); what is found in a document is what serde_json finds there; a
//! text that is quoted comes back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mote_agent::json::{self, JsonError};
use serde::de::IgnoredAny;
use serde_json::Value;

fn unescaped(raw: &[u8]) -> Option<String> {
    let mut out = Vec::new();
    json::unescape(raw, |piece| {
        out.extend_from_slice(piece);
        Ok(())
    })
    .ok()?;
    String::from_utf8(out).ok()
}

/// Every part of the document, ours against theirs.
fn same(raw: &[u8], value: &Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                same(json::member(raw, key).unwrap().unwrap(), value);
            }
            let names = json::members(raw).map(|(name, _)| unescaped(name).unwrap());
            assert!(names.into_iter().all(|name| map.contains_key(&name)));
        }
        Value::Array(values) => {
            let raw: Vec<_> = json::elements(raw).collect();
            assert_eq!(raw.len(), values.len());
            raw.iter().zip(values).for_each(|(raw, value)| same(raw, value));
        }
        Value::String(text) => {
            assert_eq!(unescaped(raw).as_ref(), Some(text));
            assert!(json::is_text(raw, text));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            assert_eq!(&serde_json::from_slice::<Value>(raw).unwrap(), value);
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let verdict = json::check(data);
    let text = core::str::from_utf8(data);
    if verdict != Err(JsonError::TooDeep) {
        let theirs = text.is_ok() && serde_json::from_slice::<IgnoredAny>(data).is_ok();
        assert_eq!(verdict.is_ok(), theirs, "{verdict:?}");
    }
    // Numbers beyond theirs and lone surrogates are valid JSON that they do not hold.
    if let (Ok(()), Ok(value)) = (verdict, serde_json::from_slice::<Value>(data)) {
        same(data.trim_ascii(), &value);
    }
    if let Ok(envelope) = json::envelope(data) {
        assert_eq!(json::check(envelope.metadata), Ok(()));
    }
    if let Ok(text) = text {
        let mut quoted = String::new();
        json::quote(&mut quoted, text).unwrap();
        assert_eq!(unescaped(quoted.as_bytes()).as_deref(), Some(text));
    }
    // Spans that were never checked.
    let _any = (json::members(data).count(), json::elements(data).count(), unescaped(data));
});
