//! Generated documents, strings and noise, compared with another implementation.

use proptest::prelude::*;
use serde_json::Value as Theirs;

use super::*;

/// Documents within the depth limit, and their text by another implementation.
fn a_document() -> impl Strategy<Value = Theirs> {
    let leaf = prop_oneof![
        Just(Theirs::Null),
        any::<bool>().prop_map(Theirs::from),
        any::<i64>().prop_map(Theirs::from),
        any::<f64>().prop_map(Theirs::from),
        any::<String>().prop_map(Theirs::from),
    ];
    leaf.prop_recursive(6, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Theirs::from),
            prop::collection::vec(("[a-c\"\\\\\u{e9}\u{0}]{0,2}", inner), 0..6)
                .prop_map(|pairs| Theirs::Object(pairs.into_iter().collect())),
        ]
    })
}

fn agrees(json: &[u8]) -> Result<(), TestCaseError> {
    let ours = check(json);
    let theirs =
        core::str::from_utf8(json).is_ok() && serde_json::from_slice::<IgnoredAny>(json).is_ok();
    if ours == Err(JsonError::TooDeep) {
        let opened = json.iter().filter(|byte| b"[{".contains(byte)).count();
        prop_assert!(opened > limits::JSON_DEPTH);
    } else {
        prop_assert_eq!(ours.is_ok(), theirs, "{:?}: {:?}", ours, String::from_utf8_lossy(json));
    }
    Ok(())
}

proptest! {
    #[test]
    fn agrees_with_serde_on_documents_and_mutants(
        document in a_document(),
        place in any::<prop::sample::Index>(),
        byte in prop_oneof![any::<u8>(), prop::sample::select(b"[]{},:\"\\u0 -.e1".to_vec())],
    ) {
        for json in [document.to_string(), format!("{document:#}")] {
            prop_assert_eq!(check(json.as_bytes()), Ok(()));
            let at = place.index(json.len());
            let mut mutant = json.clone().into_bytes();
            mutant[at] = byte;
            agrees(&mutant)?;
            mutant.insert(at, byte);
            agrees(&mutant)?;
            mutant.drain(at..(at + 2).min(json.len()));
            agrees(&mutant)?;
            agrees(&json.as_bytes()[..at])?;
        }
    }

    #[test]
    fn agrees_with_serde_on_random_input(
        words in prop::collection::vec(prop::sample::select(WORDS), 0..24),
        noise in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        agrees(words.concat().as_bytes())?;
        agrees(&noise)?;
    }

    #[test]
    fn finds_the_same_members_as_serde(document in a_document()) {
        let json = document.to_string();
        let ours = Value::parse(json.as_bytes()).unwrap();
        if let Theirs::Object(map) = &document {
            for (key, value) in map {
                let theirs = value.to_string();
                prop_assert_eq!(ours.member(key).unwrap().raw(), theirs);
            }
            prop_assert_eq!(ours.members().count(), map.len());
        }
        if let Theirs::Array(all) = &document {
            let ours: Vec<_> = ours.elements().map(Value::raw).collect();
            let theirs: Vec<_> = all.iter().map(ToString::to_string).collect();
            prop_assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn quoted_text_reads_back(text in any::<String>(), other in any::<String>()) {
        let out = Document::new(0, |json| json.string(&text));
        let value = Value::parse(out.value().raw().as_bytes()).unwrap();
        prop_assert_eq!(&value.string().unwrap(), &text);
        prop_assert_eq!(&serde_json::from_str::<String>(value.raw()).unwrap(), &text);
        prop_assert_eq!(value.is(&other), text == other);
        let mut room = vec![0; text.len()];
        prop_assert_eq!(value.text(&mut room), Ok(text.as_str()));
        prop_assert_eq!(quoted_length(&text), out.bytes());
    }

    #[test]
    fn decodes_strings_like_serde(
        pieces in prop::collection::vec(prop::sample::select(ESCAPES), 0..12),
    ) {
        let json = format!("\"{}\"", pieces.concat());
        prop_assert_eq!(check(json.as_bytes()), Ok(()));
        let ours = unescaped(&json).unwrap();
        // Lone surrogates are errors there.
        if let Ok(theirs) = serde_json::from_str::<String>(&json) {
            prop_assert_eq!(ours, theirs);
        } else {
            let replaced = ours.contains(char::REPLACEMENT_CHARACTER);
            prop_assert!(replaced);
        }
    }

    #[test]
    fn unchecked_spans_cause_no_panic(noise in any::<String>()) {
        let value = unchecked(&noise);
        let spans = value.members().count() + value.elements().count();
        prop_assert!(spans <= noise.len());
        let _any = (value.is("a"), value.text(&mut [0; 8]), Envelope::parse(noise.as_bytes()).is_ok());
    }
}

const WORDS: &[&str] = &[
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "\"a\"",
    "\"\\ud800\"",
    "\"",
    "\\",
    "1",
    "-",
    "0",
    ".",
    "e",
    "+",
    "true",
    "nul",
    " ",
    "\n",
    "\u{1}",
    "\"k\":",
    "null",
];
const ESCAPES: &[&str] = &[
    "a",
    "\u{e9}",
    "\u{1f600}",
    "\\n",
    "\\\"",
    "\\\\",
    "\\/",
    "\\u0041",
    "\\ud83d",
    "\\ude00",
    "\\uDBFF\\uDFFF",
    "u",
];
