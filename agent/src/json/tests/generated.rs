//! Generated documents, strings and soup, held against what another implementation makes of them.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// Documents within the depth, and their text as somebody else writes it.
fn a_document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec(("[a-c\"\\\\\u{e9}\u{0}]{0,2}", inner), 0..6)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
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
    fn documents_of_others_are_valid_and_so_are_no_mutants(
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
    fn soup_is_judged_as_others_judge_it(
        words in prop::collection::vec(prop::sample::select(WORDS), 0..24),
        noise in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        agrees(words.concat().as_bytes())?;
        agrees(&noise)?;
    }

    #[test]
    fn members_are_those_that_others_find(document in a_document()) {
        let json = document.to_string();
        if let Value::Object(map) = &document {
            for (key, value) in map {
                let raw = member(json.as_bytes(), key).unwrap().unwrap();
                prop_assert_eq!(raw.to_vec(), value.to_string().into_bytes());
            }
            prop_assert_eq!(members(json.as_bytes()).count(), map.len());
        }
        if let Value::Array(all) = &document {
            let raw: Vec<_> = elements(json.as_bytes()).map(<[u8]>::to_vec).collect();
            let theirs: Vec<_> = all.iter().map(|value| value.to_string().into_bytes()).collect();
            prop_assert_eq!(raw, theirs);
        }
    }

    #[test]
    fn what_is_quoted_comes_back(text in any::<String>(), other in any::<String>()) {
        let mut out = String::new();
        quote(&mut out, &text).unwrap();
        prop_assert_eq!(check(out.as_bytes()), Ok(()));
        prop_assert_eq!(&unescaped(&out).unwrap(), &text);
        prop_assert_eq!(&serde_json::from_str::<String>(&out).unwrap(), &text);
        prop_assert_eq!(is_text(out.as_bytes(), &other), text == other);
        let mut room = vec![0; text.len()];
        prop_assert_eq!(super::text(out.as_bytes(), &mut room), Ok(text.as_str()));
    }

    #[test]
    fn any_string_that_others_accept_means_the_same(
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
    fn nothing_panics_on_spans_that_were_never_checked(noise in prop::collection::vec(any::<u8>(), 0..60)) {
        let spans = members(&noise).count() + elements(&noise).count();
        prop_assert!(spans <= noise.len());
        let _any = (is_text(&noise, "a"), text(&noise, &mut [0; 8]), envelope(&noise).is_ok());
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
