use super::*;
use crate::limits;

fn check(json: &[u8]) -> Result<(), JsonError> {
    Value::parse(json).map(drop)
}

/// One document per line.
const VALID: &str = r#"null
true
false
0
-12.50e+03
"a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00\ud800"
"é😀"
[]
{}
[1,[2,{"a":[]}],"]"]
{"a" : 1 , "b":{"c":null}}
{"":0,"":1}"#;

#[test]
fn rejects_a_truncated_or_continued_document() {
    for json in VALID.lines() {
        for (trailing, at) in
            [("]", 0), ("}", 0), (" x", 1), (",", 0), ("\n\t \"", 3), (" null", 1)]
        {
            let why = check(format!("{json}{trailing}").as_bytes()).unwrap_err();
            assert_eq!(why, JsonError::Trailing(json.len() + at), "{json}{trailing:?}");
        }
        assert_eq!(check(format!("{json} \t\r\n").as_bytes()), Ok(()));
        if !json.starts_with(['{', '[', '"', 't', 'f', 'n']) {
            continue; // a number cut is a shorter number
        }
        for cut in 0..json.len() {
            let error = check(&json.as_bytes()[..cut]).expect_err(json);
            // A cut within a character is invalid UTF-8.
            let broken = !json.is_char_boundary(cut);
            assert!(error == JsonError::Truncated || broken, "{json:?} cut at {cut}: {error:?}");
        }
    }
}

#[test]
fn limits_the_depth_without_using_stack() {
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
    // The number of elements is not limited.
    assert_eq!(check(format!("[{}[]]", "[[]],".repeat(10_000)).as_bytes()), Ok(()));
}

/// A value that was not checked, which only this module can make.
fn unchecked(raw: &str) -> Value<'_> {
    Value::written(raw)
}

#[test]
fn only_valid_objects_have_members() {
    for json in ["[]", "1", "\"a\"", "null"] {
        let value = Value::parse(json.as_bytes()).unwrap();
        assert_eq!((value.member("a"), value.fields(["a"])), (None, Err(JsonError::Shape)));
    }
    // The requested member comes first, but the document is invalid after it.
    assert_eq!(check(b"{\"a\":1,}"), Err(JsonError::Syntax(7)));
    // The offset of invalid UTF-8 is reported, too.
    assert_eq!(check(b"[\"ab\xffc\"]"), Err(JsonError::Syntax(4)));
    assert_eq!(check(b"{\"\xed\xa0\x80\":1}"), Err(JsonError::Syntax(2)));
}

#[test]
fn fields_treat_null_as_absent() {
    let json = br#"{"b":1,"x":{"a":9},"\u0061":2,"c":null,"b":3,"b":null}"#;
    let fields = Value::parse(json).unwrap().fields(["a", "b", "c", "d"]).unwrap();
    assert_eq!(fields.map(|value| value.map(Value::raw)), [Some("2"), Some("3"), None, None]);
}

#[test]
fn reads_numbers_and_booleans_as_the_requested_type() {
    let value = |json: &'static str| Value::parse(json.as_bytes()).unwrap();
    assert_eq!((value("true").boolean(), value("false").boolean()), (Ok(true), Ok(false)));
    for other in ["null", "1", "\"true\"", "[true]"] {
        assert_eq!(value(other).boolean(), Err(JsonError::Shape), "{other}");
    }
    assert_eq!((value("65535").number(), value("-1").number()), (Ok(65535_u16), Ok(-1_i8)));
    for other in ["65536", "-1", "1.0", "1e3", "\"1\"", "null"] {
        assert_eq!(value(other).number::<u16>(), Err(JsonError::Shape), "{other}");
    }
}

#[test]
fn a_document_keeps_its_text() {
    let read = Document::read(b" {\"a\": 1}\n".to_vec()).unwrap();
    assert_eq!(read.value().raw(), "{\"a\": 1}");
    assert_eq!(Document::read(b"{".to_vec()), Err(JsonError::Truncated));
    assert_eq!(Document::read(b"[\"\xff\"]".to_vec()), Err(JsonError::Syntax(2)));
    let written = Document::new(0, |json| json.text(b"x"));
    assert_eq!((written.bytes(), written.line().as_str()), (3, "\"x\"\n"));
}

/// Returns the decoded text, and checks that decoding in place gives the same.
fn unescaped(raw: &str) -> Result<String, JsonError> {
    let text = unchecked(raw).string();
    let mut within = raw.as_bytes().to_vec();
    let length = unescape_within(&mut within);
    assert_eq!(length.map(|length| &within[..length]), text.as_deref().ok().map(str::as_bytes));
    text
}

#[test]
fn decodes_strings_as_go_does() {
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
        assert!(unchecked(raw).is(text), "{raw}");
        assert!(!unchecked(raw).is(&format!("{text}x")), "{raw}");
        assert!(text.is_empty() || !unchecked(raw).is(""), "{raw}");
    }
    for raw in
        ["", "\"", "a", "1", "[]", "\"a", "a\"", r#""\""#, r#""\x""#, r#""\u12""#, r#""\u12g4""#]
    {
        assert_eq!(unescaped(raw), Err(JsonError::Shape), "{raw}");
        assert!(!unchecked(raw).is(raw), "{raw}");
    }
}

#[test]
fn limits_the_length_of_a_text() {
    let raw = unchecked(r#""ab\u20ac""#);
    for room in [5, 6] {
        assert_eq!(raw.text(&mut vec![0; room]), Ok("ab\u{20ac}"));
    }
    assert_eq!(raw.text(&mut [0; 4]), Err(JsonError::TooLong));
    assert_eq!(unchecked("\"\"").text(&mut []), Ok(""));
    assert_eq!(unchecked("12").text(&mut [0; 4]), Err(JsonError::Shape));
}

#[test]
fn reads_envelopes_in_any_order_with_unknown_members() {
    let json = br#"{"metadata": {"a": [1]}, "error_code":0,"x":{"type":"error"},"error":"","type":"sync"}"#;
    let read = Envelope::parse(json).unwrap();
    assert_eq!((read.kind, read.error_code), (Kind::Sync, 0));
    assert_eq!(read.error.map(Value::raw), Some("\"\""));
    assert_eq!(read.metadata.raw(), r#"{"a": [1]}"#);
    let read =
        Envelope::parse(br#"{"type":"error","error":"not \"found\"","error_code":404}"#).unwrap();
    assert_eq!((read.kind, read.error_code), (Kind::Error, 404));
    assert_eq!(read.error.map(Value::raw), Some(r#""not \"found\"""#));
    assert_eq!(read.metadata, Value::NULL);
    let read = Envelope::parse(br#"{"t\u0079pe":"as\u0079nc","error_code":99999}"#).unwrap();
    assert_eq!((read.kind, read.error_code), (Kind::Async, 0));
}

#[test]
fn rejects_invalid_envelopes() {
    for (json, why) in [
        ("{}", JsonError::Shape),
        ("[]", JsonError::Shape),
        (r#"{"type":"other"}"#, JsonError::Shape),
        (r#"{"type":1}"#, JsonError::Shape),
        // Of repeated members, the last one counts here, too.
        (r#"{"type":"sync","type":"neither"}"#, JsonError::Shape),
        ("404 page not found\n", JsonError::Trailing(4)),
        ("Forbidden\n", JsonError::Syntax(0)),
    ] {
        assert_eq!(Envelope::parse(json.as_bytes()).err(), Some(why), "{json}");
    }
}
