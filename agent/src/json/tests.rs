mod generated;

use super::*;
use crate::limits;
use std::{format, string::String, string::ToString, vec, vec::Vec};

use serde::de::IgnoredAny;

const VALID: &[&str] = &[
    "null",
    "true",
    "false",
    "0",
    "-0",
    "-12.50e+03",
    "1E9",
    "1e999",
    "\"\"",
    "\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\\ud800\"",
    "\"\u{e9}\u{1f600}\u{7f}\"",
    "[]",
    "{}",
    " [ ] ",
    "{ }",
    "[1,[2,{\"a\":[]}],\"]\"]",
    "\t{\r\n\"a\" : 1 , \"b\":{\"c\":null}}\n",
    "{\"\":0,\"\":1}",
];

const INVALID: &[&str] = &[
    "nul",
    "nulL",
    "True",
    "+1",
    "01",
    "-",
    "1.",
    ".5",
    "1e",
    "1e+",
    "0x1",
    "1_0",
    "NaN",
    "'a'",
    "\"\\x\"",
    "\"\\u12g4\"",
    "\"\\u12",
    "\"a\nb\"",
    "\"\u{0}\"",
    "\"\u{1f}\"",
    "[,]",
    "[1,]",
    "[1 2]",
    "[1}",
    "{1:2}",
    "{\"a\"}",
    "{\"a\":}",
    "{\"a\":1,}",
    "{,}",
    "{\"a\" 1}",
    "{\"a\":1]",
    "]",
    "}",
    ",",
    ":",
    "/**/1",
    "\u{feff}1",
    "",
    " ",
    "[",
    "{",
    "[[",
    "{\"a\":",
    "{\"a\"",
    "\"",
    "\"\\",
    "\u{a0}1",
];

#[test]
fn valid_documents_pass_and_invalid_ones_do_not() {
    for json in VALID {
        assert_eq!(check(json.as_bytes()), Ok(()), "{json:?}");
    }
    for json in INVALID {
        assert!(check(json.as_bytes()).is_err(), "{json:?}");
        assert!(serde_json::from_str::<IgnoredAny>(json).is_err(), "{json:?} is valid after all");
    }
}

#[test]
fn a_document_cut_anywhere_is_not_one() {
    for json in VALID {
        let json = json.trim();
        if !json.starts_with(['{', '[', '"', 't', 'f', 'n']) {
            continue; // a number cut is a shorter number
        }
        for cut in 0..json.len() {
            let error = check(&json.as_bytes()[..cut]).expect_err(json);
            // Within a character the cut is seen as broken text.
            let broken = !json.is_char_boundary(cut);
            assert!(error == JsonError::Truncated || broken, "{json:?} cut at {cut}: {error:?}");
        }
    }
}

#[test]
fn what_follows_a_document_is_found() {
    for json in VALID {
        let json = json.trim_end();
        for (trailing, at) in
            [("]", 0), ("}", 0), (" x", 1), (",", 0), ("\n\t \"", 3), (" null", 1)]
        {
            let longer = format!("{json}{trailing}");
            assert_eq!(
                check(longer.as_bytes()),
                Err(JsonError::Trailing(json.len() + at)),
                "{longer:?}"
            );
        }
        assert_eq!(check(format!("{json} \t\r\n").as_bytes()), Ok(()));
    }
}

#[test]
fn text_that_is_not_utf8_is_refused_where_it_is() {
    assert_eq!(check(b"[\"ab\xffc\"]"), Err(JsonError::Syntax(4)));
    assert_eq!(check(b"{\"\xed\xa0\x80\":1}"), Err(JsonError::Syntax(2)));
    assert_eq!(check(b"[\xff]"), Err(JsonError::Syntax(1)));
}

#[test]
fn the_depth_is_limited_at_its_edge_and_costs_no_stack() {
    let arrays = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let objects = |depth: usize| "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth);
    for depth in [limits::JSON_DEPTH - 1, limits::JSON_DEPTH] {
        assert_eq!(check(arrays(depth).as_bytes()), Ok(()));
        assert_eq!(check(objects(depth).as_bytes()), Ok(()));
    }
    for depth in [limits::JSON_DEPTH + 1, 64, 65, 1_000_000] {
        assert_eq!(check(arrays(depth).as_bytes()), Err(JsonError::TooDeep));
        assert_eq!(check(objects(depth).as_bytes()), Err(JsonError::TooDeep));
        assert_eq!(check("[".repeat(depth).as_bytes()), Err(JsonError::TooDeep));
    }
    // Breadth costs nothing.
    assert_eq!(check(format!("[{}[]]", "[[]],".repeat(10_000)).as_bytes()), Ok(()));
}

fn found<'j>(json: &'j str, key: &str) -> Option<&'j str> {
    let raw = member(json.as_bytes(), key).unwrap()?;
    Some(core::str::from_utf8(raw).unwrap())
}

#[test]
fn a_member_is_given_as_it_stands_there() {
    let json =
        " { \"a\" : [1, {\"b\": 2}] , \"n\":-1.50e+3,\"s\":\"x\\n\\\"}\" , \"\\u0061b\":null } ";
    assert_eq!(found(json, "a"), Some("[1, {\"b\": 2}]"));
    assert_eq!(found(json, "n"), Some("-1.50e+3"));
    assert_eq!(found(json, "s"), Some("\"x\\n\\\"}\""));
    assert_eq!(found(json, "ab"), Some("null"), "a name may be escaped");
    for missing in ["b", "", "A", "aa", "\\u0061b", "\"a\""] {
        assert_eq!(found(json, missing), None, "{missing:?}");
    }
    assert_eq!(found("{}", "a"), None);
}

#[test]
fn the_last_of_several_members_counts() {
    assert_eq!(found("{\"a\":1,\"b\":2,\"\\u0061\":3}", "a"), Some("3"));
}

#[test]
fn members_are_only_those_of_a_valid_object() {
    for json in ["[]", "1", "\"a\"", "null"] {
        assert_eq!(member(json.as_bytes(), "a"), Err(JsonError::Shape), "{json}");
    }
    // The wanted one comes first, but the document is broken behind it.
    assert_eq!(member(b"{\"a\":1,}", "a"), Err(JsonError::Syntax(7)));
    assert_eq!(member(b"{\"a\":1", "a"), Err(JsonError::Truncated));
}

#[test]
fn elements_and_members_are_walked_in_order() {
    let walk = |json: &'static str| -> Vec<&str> {
        elements(json.as_bytes()).map(|raw| core::str::from_utf8(raw).unwrap()).collect()
    };
    assert_eq!(walk(" [ 1 ,\"a,]\", [2, 3] , {} ] "), ["1", "\"a,]\"", "[2, 3]", "{}"]);
    for none in ["[]", "[ ]", "{}", "{\"a\":1}", "1", "\"[1]\"", ""] {
        assert!(walk(none).is_empty(), "{none}");
        assert_eq!(members(none.as_bytes()).count(), usize::from(none == "{\"a\":1}"), "{none}");
    }
    let all: Vec<_> = members(b" {\"a\" :1, \"\\n\": {\"b\":2} }").collect();
    assert_eq!(all, [(&b"\"a\""[..], &b"1"[..]), (b"\"\\n\"", b"{\"b\":2}")]);
}

fn unescaped(raw: &str) -> Result<String, JsonError> {
    let mut out = Vec::new();
    unescape(raw.as_bytes(), |piece| {
        out.extend_from_slice(piece);
        Ok(())
    })?;
    Ok(String::from_utf8(out).unwrap())
}

#[test]
fn strings_stand_for_what_go_takes_them_for() {
    for (raw, text) in [
        (r#""""#, ""),
        (r#""plain""#, "plain"),
        (r#""\"\\\/\b\f\n\r\t""#, "\"\\/\u{8}\u{c}\n\r\t"),
        (r#""\u0041\u00e9\u20AC\u0000""#, "A\u{e9}\u{20ac}\0"),
        (r#""\ud83d\ude00\uDBFF\uDFFF""#, "\u{1f600}\u{10ffff}"),
        (r#""a\ud83d""#, "a\u{fffd}"),
        (r#""\ude00b""#, "\u{fffd}b"),
        (r#""\ud83dx\ude00""#, "\u{fffd}x\u{fffd}"),
        (r#""\ud83d\n""#, "\u{fffd}\n"),
        (r#""\ud83d\u0041""#, "\u{fffd}A"),
        (r#""\ud83d\ud83d\ude00""#, "\u{fffd}\u{1f600}"),
    ] {
        assert_eq!(unescaped(raw).as_deref(), Ok(text), "{raw}");
        assert!(is_text(raw.as_bytes(), text), "{raw}");
        assert!(!is_text(raw.as_bytes(), &format!("{text}x")), "{raw}");
        assert!(text.is_empty() || !is_text(raw.as_bytes(), ""), "{raw}");
    }
    for raw in
        ["", "\"", "a", "1", "[]", "\"a", "a\"", r#""\""#, r#""\x""#, r#""\u12""#, r#""\u12g4""#]
    {
        assert_eq!(unescaped(raw), Err(JsonError::Shape), "{raw}");
        assert!(!is_text(raw.as_bytes(), raw), "{raw}");
    }
}

#[test]
fn a_sink_that_is_full_ends_it() {
    let mut calls = 0;
    let result = unescape(b"\"a\\nb\"", |_| {
        calls += 1;
        if calls == 2 { Err(JsonError::TooLong) } else { Ok(()) }
    });
    assert_eq!((result, calls), (Err(JsonError::TooLong), 2));
}

#[test]
fn the_room_for_a_text_is_limited_at_its_edge() {
    let raw = r#""ab\u20ac""#.as_bytes();
    for room in [5, 6] {
        assert_eq!(text(raw, &mut vec![0; room]), Ok("ab\u{20ac}"));
    }
    assert_eq!(text(raw, &mut [0; 4]), Err(JsonError::TooLong));
    assert_eq!(text(b"\"\"", &mut []), Ok(""));
    assert_eq!(text(b"12", &mut [0; 4]), Err(JsonError::Shape));
}

#[test]
fn quoted_text_hides_every_control() {
    let mut out = String::new();
    quote(&mut out, "a\"\\/\n\r\t\0\u{1f}\u{7f}\u{20ac}").unwrap();
    assert_eq!(out, "\"a\\\"\\\\/\\n\\r\\t\\u0000\\u001f\u{7f}\u{20ac}\"");
}

#[test]
fn envelopes_are_read_whatever_their_order_and_extras() {
    let json = br#"{"metadata": {"a": [1]}, "error_code":0,"x":{"type":"error"},"error":"","type":"sync"}"#;
    let read = envelope(json).unwrap();
    assert_eq!((read.kind, read.error_code, read.error), (Kind::Sync, 0, Some(&b"\"\""[..])));
    assert_eq!(read.metadata, br#"{"a": [1]}"#);
    let read = envelope(br#"{"type":"error","error":"not \"found\"","error_code":404}"#).unwrap();
    assert_eq!((read.kind, read.error_code), (Kind::Error, 404));
    assert_eq!((read.error, read.metadata), (Some(&br#""not \"found\"""#[..]), &b"null"[..]));
    let read = envelope(br#"{"t\u0079pe":"as\u0079nc","error_code":99999}"#).unwrap();
    assert_eq!((read.kind, read.error_code), (Kind::Async, 0));
}

#[test]
fn what_is_no_envelope_is_refused() {
    for json in ["{}", "[]", "null", r#"{"type":"other"}"#, r#"{"type":1}"#, r#"{"type":null}"#] {
        assert_eq!(envelope(json.as_bytes()).err(), Some(JsonError::Shape), "{json}");
    }
    // The last one counts, also here.
    let twice = br#"{"type":"sync","type":"neither"}"#;
    assert_eq!(envelope(twice).err(), Some(JsonError::Shape));
    assert!(matches!(envelope(b"404 page not found\n").err(), Some(JsonError::Trailing(4))));
    assert!(matches!(envelope(b"Forbidden\n").err(), Some(JsonError::Syntax(0))));
}

#[test]
fn errors_are_sentences() {
    let errors = [
        JsonError::Syntax(7),
        JsonError::TooDeep,
        JsonError::Truncated,
        JsonError::Trailing(7),
        JsonError::Shape,
        JsonError::TooLong,
    ];
    let said: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert!(said.iter().all(|text| text.contains("JSON") && text.contains(' ')), "{said:?}");
    assert!(said[0].contains('7') && said[3].contains('7'), "{said:?}");
}
