//! Answers that the agent passes from the host to guests. Invariants: only values that serde_json
//! finds in the answer are shown, and errors have a short text and a valid status.

use mote_core::devlxd::answer::{Body, present};
use mote_core::devlxd::ready::host_state;
use mote_core::devlxd::route::Ask;

use crate::prelude::*;

/// Maximum length of an error text with its newline, in bytes.
const ERROR: usize = 1025;

fn permitted(flavour: Flavour, ask: Ask, mut metadata: Value) -> Value {
    if ask == Ask::Info && metadata["auth"] == "untrusted" {
        metadata.as_object_mut().unwrap().remove("environment");
    }
    if ask == Ask::ConfigKeys && flavour != Flavour::Lxd {
        let is_own = |url: &str| {
            let key = url.strip_prefix("/1.0/config/");
            key.is_some_and(|key| key.starts_with("user.") || key.starts_with("cloud-init."))
        };
        let keys = metadata.as_array().cloned().unwrap_or_default();
        let own = keys.into_iter().filter(|key| key.as_str().is_some_and(is_own));
        metadata = Value::Array(own.collect());
    }
    metadata
}

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let (flavour, ask) = (input.flavour(), Ask::ALL[usize::from(input.byte()) % Ask::ALL.len()]);
    let status = [200, 202, 400, 403, 404, 500, 99, 700][usize::from(input.byte() % 8)];
    let answer = input.0;
    let (verdict, shown) = present(flavour, ask, status, answer.to_vec());
    let theirs = serde_json::from_slice::<Value>(answer).ok();
    match verdict.body {
        Body::Text => {
            assert!((400..600).contains(&verdict.status), "{verdict:?}");
            assert!(shown.len() <= ERROR && shown.len() > 1 || status >= 400, "{}", shown.len());
        }
        Body::Raw => {
            assert!(ask.is_raw() && verdict.status == 200 && status < 400);
            if let Some(theirs) = &theirs {
                let text = theirs["metadata"].as_str().unwrap_or("");
                assert_eq!(shown, text.as_bytes());
            }
        }
        Body::Json => {
            assert!(!ask.is_raw() && verdict.status == 200 && shown.ends_with(b"\n"));
            if let Some(theirs) = theirs {
                let seen: Value = serde_json::from_slice(&shown).unwrap();
                let expected = permitted(flavour, ask, theirs["metadata"].clone());
                if ask == Ask::ConfigKeys && answer.contains(&b'\\') {
                    // mote may omit a URL that contains escapes.
                    let expected = expected.as_array().unwrap();
                    let seen = seen.as_array().unwrap();
                    assert!(
                        flavour == Flavour::Lxd || seen.iter().all(|url| expected.contains(url))
                    );
                } else {
                    assert_eq!(seen, expected);
                }
            }
        }
    }
    let _state = host_state(answer);
}
