//! JSON documents. Invariants: same verdict as serde_json within the depth limit, same values,
//! quoted text reads back, and a status file that is read and written again is unchanged.

use mote_core::json::{Document, Envelope, JsonError, Value, quoted_length};
use mote_core::status::view::View;
use serde::de::IgnoredAny;
use serde_json::Value as Theirs;

fn same(ours: Value<'_>, theirs: &Theirs) {
    assert_eq!(&serde_json::from_str::<Theirs>(ours.raw()).unwrap(), theirs);
    assert_eq!(ours.raw(), ours.raw().trim());
    match theirs {
        Theirs::Object(map) => {
            for (key, theirs) in map {
                same(ours.member(key).unwrap(), theirs);
            }
            let names = ours.members().map(|(name, _)| name.string().unwrap());
            assert!(names.into_iter().all(|name| map.contains_key(&name)));
        }
        Theirs::Array(values) => {
            let ours: Vec<_> = ours.elements().collect();
            assert_eq!(ours.len(), values.len());
            ours.iter().zip(values).for_each(|(ours, theirs)| same(*ours, theirs));
        }
        Theirs::String(text) => {
            assert_eq!(ours.string().as_ref(), Ok(text));
            assert!(ours.is(text));
        }
        Theirs::Null | Theirs::Bool(_) | Theirs::Number(_) => {}
    }
}

pub fn run(data: &[u8]) {
    if let Some(view) = View::read(data) {
        assert_eq!(View::read(view.write().as_bytes()), Some(view));
    }
    let ours = Value::parse(data);
    let text = core::str::from_utf8(data);
    if ours != Err(JsonError::TooDeep) {
        let theirs = text.is_ok() && serde_json::from_slice::<IgnoredAny>(data).is_ok();
        assert_eq!(ours.is_ok(), theirs, "{ours:?}");
    }
    // Numbers beyond serde_json's range and lone surrogates are valid JSON, too.
    if let (Ok(ours), Ok(theirs)) = (ours, serde_json::from_slice::<Theirs>(data)) {
        same(ours, &theirs);
    }
    if let Ok(envelope) = Envelope::parse(data) {
        assert!(Value::parse(envelope.metadata.raw().as_bytes()).is_ok());
    }
    if let Ok(text) = text {
        let quoted = Document::new(0, |json| json.string(text));
        assert_eq!(quoted.value().string().as_deref(), Ok(text));
        assert_eq!(quoted.bytes(), quoted_length(text));
    }
}
