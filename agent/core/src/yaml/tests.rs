//! Documents in different notations with the same meaning, and documents that must be refused,
//! with the line of the error.

use super::*;
use std::vec::Vec;

/// Returns the whole document on one line: `{key value}`, `[item]`, texts quoted.
fn read(text: &str) -> Result<String, YamlError> {
    let mut parser = Parser::new(text.as_bytes())?;
    let mut out = String::new();
    let mut open = Vec::new();
    while let Some(event) = parser.next()? {
        if !out.is_empty() && !out.ends_with(['{', '[']) && event != Event::End {
            out.push(' ');
        }
        match event {
            Event::Map => {
                out.push('{');
                open.push('}');
            }
            Event::Seq => {
                out.push('[');
                open.push(']');
            }
            Event::End => out.push(open.pop().unwrap()),
            Event::Scalar(scalar) if scalar.is_block() => out.push('|'),
            Event::Scalar(scalar) if scalar.is_null() => out.push('~'),
            Event::Scalar(scalar) => {
                let mut text = String::new();
                scalar.text(|piece| text.push_str(piece));
                assert!(scalar.is(&text));
                out.push_str(&format!("{text:?}"));
            }
        }
    }
    assert!(open.is_empty());
    Ok(out)
}

fn same(meaning: &str, ways: &[&str]) {
    for way in ways {
        assert_eq!(read(way).as_deref(), Ok(meaning), "{way}");
        // The form in which a Windows editor saves it.
        let other = way.replace('\n', "\r\n");
        assert_eq!(read(&other).as_deref(), Ok(meaning), "{other:?}");
    }
}

#[test]
fn reads_all_styles_of_a_map() {
    same(
        "{\"a\" \"b\" \"c\" [\"d\" \"e\"]}",
        &[
            "a: b\nc: [d, e]\n",
            "a: b\nc:\n- d\n- e",
            "a: b\nc:\n  - d\n  - e\n",
            "---\n# said first\na:   b # why\n\nc:\n\n    -   d\n    # between\n    - e\n...\n",
            "{a: b, c: [d, e]}",
            "{\"a\":\"b\",\"c\":[\"d\",\"e\"]}\n",
            "  {'a': b,\n c: [ d\n , # comment\ne , ],}",
            "'a': \"b\"\n\"c\":\n  [d,\n   e]\n",
            "a:\n  b\nc: [d, e]\n",
            "\u{feff}a: b\nc: [d,e]",
        ],
    );
}

#[test]
fn reads_metadata_of_real_images() {
    let image = "architecture: x86_64\ncreation_date: 1761033000\nexpiry_date: 1763625000\n\
        properties:\n  architecture: amd64\n  description: Debian bookworm amd64 (20251121_05:24)\n\
        \x20 name: debian-bookworm-amd64-default-20251121_05:24\n  os: debian\n  notes: |\n    a: [b\n\n    \
        - c\ntemplates:\n  /etc/hostname:\n    when:\n    - create\n    - copy\n    create_only: false\n    \
        template: hostname.tpl\n    properties: {}\n  \"/etc/hosts\": {when: [create], template: 'h.tpl'}\n";
    same(
        "{\"architecture\" \"x86_64\" \"creation_date\" \"1761033000\" \"expiry_date\" \"1763625000\" \
         \"properties\" {\"architecture\" \"amd64\" \"description\" \
         \"Debian bookworm amd64 (20251121_05:24)\" \"name\" \
         \"debian-bookworm-amd64-default-20251121_05:24\" \"os\" \"debian\" \"notes\" |} \
         \"templates\" {\"/etc/hostname\" {\"when\" [\"create\" \"copy\"] \"create_only\" \"false\" \
         \"template\" \"hostname.tpl\" \"properties\" {}} \"/etc/hosts\" {\"when\" [\"create\"] \
         \"template\" \"h.tpl\"}}}",
        &[image],
    );
}

#[test]
fn reads_every_notation_of_a_document() {
    for (meaning, ways) in [
        // An omitted value is null.
        ("~", &["", "# nothing\n", "---\n", "~", "null\n...\n"][..]),
        (r#"{"a" ~ "b" ~}"#, &["a:\nb:", "a: ~\nb: # none\n", "{a, b: }", "{a: , b}"]),
        (r#"[~ ~ ""]"#, &["-\n-\n- ''", "- ~\n- null\n- \"\"", "[~, null, '']"]),
        (r#"{"a" [~] "b" ~}"#, &["a:\n-\nb:\n"]),
        // A collection may begin on the line of its dash.
        (
            r#"[["a" "b"] {"c" "d" "e" ["f"]} ~]"#,
            &[
                "- - a\n  - b\n- c: d\n  e:\n  - f\n-\n",
                "-\n  - a\n  - b\n-\n  c: d\n  e: [f]\n- ~\n",
            ],
        ),
        // The lines of a scalar are folded.
        (
            r#"{"a" "b c\nd"}"#,
            &["a: b\n  c\n\n  d\n", "a: 'b\n  c\n\n   d'", "a:\n  b\n  c\n\n  d"],
        ),
        (r#"{"a" "b - c"}"#, &["a: b\n  - c # d", "a: \"b\n  - c\""]),
        (r#"["a b"]"#, &["[a\n  b]", "- a\n  b", "- 'a \n  b'", "[\"a\n b\"]"]),
        (r#"["a\n\nb "]"#, &["- 'a\n\n\n  b\n  '"]),
        (r#""ab\n c""#, &["\"a\\\n  b\n\n  \\ c\""]),
        (r#""a \nb""#, &["\"a \\\n\n  b\""]),
        (r#""it's \\n""#, &["'it''s \\n'"]),
        (r#"" a  b ""#, &["' a  b '", "\" a  b \"", "\"\\x20a  b\\x20\""]),
        // A block scalar is skipped.
        (r#"[| | ~]"#, &["- |\n a\n\n- >\n\n  b\n-"]),
        (r#"{"a" | "b" ~}"#, &["a: |\nb:"]),
        ("|", &["|\nwhole\ntext", "--- |\n x\n...\n"]),
        // A colon or a hash within a word is text.
        (r#"{"a:b" "c#d" "http://x" "-e"}"#, &["a:b: c#d\nhttp://x: -e"]),
        (r#"["a:b" "-c" "?d"]"#, &["[a:b, -c, ?d]", "- a:b\n- -c\n- ?d"]),
    ] {
        same(meaning, ways);
    }
    for text in ["|", ">-", "|2+", ">1 # note"] {
        let document = format!("a: {text}\n  b: c\n\n   # d\n  e\nf: g\n");
        same("{\"a\" | \"f\" \"g\"}", &[&document]);
    }
    let escapes = "\"\\0\\a\\t\\e\\\"\\/\\\\\\N\\_\\x41\\u00e9\\U0001F600\"";
    let meant = "\0\x07\t\x1b\"/\\\u{85}\u{a0}A\u{e9}\u{1f600}";
    assert_eq!(read(escapes).unwrap(), format!("{meant:?}"));
}

#[test]
fn rejects_unsupported_yaml_with_its_line() {
    for (document, line, why) in [
        ("a: &x b", 1, Why::Unsupported("an anchor")),
        ("a: b\nc: *x", 2, Why::Unsupported("an alias")),
        ("\n- !!str a", 2, Why::Unsupported("a tag")),
        ("? a\n: b", 1, Why::Unsupported("a '? ' key")),
        ("%YAML 1.2\n---\na", 1, Why::Unsupported("a directive")),
        ("a: b\n\tc: d", 2, Why::Unsupported("a tab")),
        ("a:\tb", 1, Why::Unsupported("a tab")),
        ("a\n---\nb", 2, Why::Unsupported("a second document")),
        ("[a: b]", 1, Why::Unsupported("a pair in a sequence")),
        ("{[a]: b}", 1, Why::Unsupported("a collection as a key")),
        ("a: b\rc: d", 1, Why::Control),
        ("a: b\r\r\nc: d", 1, Why::Control),
        ("a: b\r\nc: d\r", 2, Why::Control),
        ("a: b\nc: \u{1}", 2, Why::Control),
        ("a: b\n  c: d", 2, Why::Unexpected),
        ("a:\n  b: c\n d: e", 3, Why::Indent),
        ("a: b: c", 1, Why::Unexpected),
        ("a: - b", 1, Why::Unexpected),
        ("- a\nb: c", 2, Why::Unexpected),
        ("a: b\n- c", 2, Why::Unexpected),
        ("a: 'b' c", 1, Why::Unexpected),
        ("a: \"b", 1, Why::Truncated),
        ("a: [b\n", 2, Why::Truncated),
        ("a: [b}", 1, Why::Truncated),
        ("a: \"\\q\"", 1, Why::Escape),
        ("a: \"\\ud800\"", 1, Why::Escape),
        ("a: 'b\nc'", 2, Why::Indent),
        ("a: `b`", 1, Why::Unexpected),
        ("[,]", 1, Why::Unexpected),
        ("[[[[[[[[[[[[[[[[[", 1, Why::TooDeep),
    ] {
        assert_eq!(read(document), Err(YamlError { line, why }), "{document:?}");
    }
    assert_eq!(Parser::new(b"a\n\xff").err(), Some(YamlError { line: 2, why: Why::Encoding }));
    let key = "k".repeat(KEY);
    assert!(read(&format!("{key}: v")).is_ok() && read(&format!("{{{key}: v}}")).is_ok());
    let long = Err(YamlError { line: 1, why: Why::LongKey });
    assert_eq!(read(&format!("{key}k: v")), long);
    assert_eq!(read(&format!("{{{key}k: v}}")), long);
}

#[test]
fn skips_a_whole_node() {
    let mut parser = Parser::new(b"a: {b: [c, {d: e}], f: g}\nh: i").unwrap();
    assert_eq!(parser.step(), Ok(Event::Map));
    let _key = parser.step().unwrap();
    let first = parser.step().unwrap();
    parser.skip(first).unwrap();
    assert!(matches!(parser.step(), Ok(Event::Scalar(key)) if key.is("h")));
    assert_eq!(parser.line(), 2);
}
