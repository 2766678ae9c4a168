//! Documents in different notations with the same meaning; documents that must be refused, with
//! the line of the error; and arbitrary trees in arbitrary notations.

use super::*;
use proptest::prelude::*;
use std::format;
use std::string::String;
use std::vec::Vec as List;

/// The whole document on one line: `{key value}`, `[item]`, texts quoted.
fn read(text: &str) -> Result<String, YamlError> {
    let mut parser = Parser::new(text.as_bytes())?;
    let mut out = String::new();
    let mut open = List::new();
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
        // As a Windows editor saves it.
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
fn an_omitted_value_is_null() {
    same("~", &["", "# nothing\n", "---\n", "~", "null\n...\n"]);
    same("{\"a\" ~ \"b\" ~}", &["a:\nb:", "a: ~\nb: # none\n", "{a, b: }", "{a: , b}"]);
    same("[~ ~ \"\"]", &["-\n-\n- ''", "- ~\n- null\n- \"\"", "[~, null, '']"]);
    same("{\"a\" [~] \"b\" ~}", &["a:\n-\nb:\n"]);
}

#[test]
fn nested_collections_may_begin_on_the_line_of_their_dash() {
    same(
        "[[\"a\" \"b\"] {\"c\" \"d\" \"e\" [\"f\"]} ~]",
        &["- - a\n  - b\n- c: d\n  e:\n  - f\n-\n", "-\n  - a\n  - b\n-\n  c: d\n  e: [f]\n- ~\n"],
    );
}

#[test]
fn folds_the_lines_of_a_scalar() {
    same(
        "{\"a\" \"b c\\nd\"}",
        &["a: b\n  c\n\n  d\n", "a: 'b\n  c\n\n   d'", "a:\n  b\n  c\n\n  d"],
    );
    same("{\"a\" \"b - c\"}", &["a: b\n  - c # d", "a: \"b\n  - c\""]);
    same("[\"a b\"]", &["[a\n  b]", "- a\n  b", "- 'a \n  b'", "[\"a\n b\"]"]);
    same("[\"a\\n\\nb \"]", &["- 'a\n\n\n  b\n  '"]);
    same("\"ab\\n c\"", &["\"a\\\n  b\n\n  \\ c\""]);
    same("\"a \\nb\"", &["\"a \\\n\n  b\""]);
}

#[test]
fn decodes_escapes_and_quotes() {
    same("\"it's \\\\n\"", &["'it''s \\n'"]);
    let escapes = "\"\\0\\a\\t\\e\\\"\\/\\\\\\N\\_\\x41\\u00e9\\U0001F600\"";
    let meant = "\0\x07\t\x1b\"/\\\u{85}\u{a0}A\u{e9}\u{1f600}";
    assert_eq!(read(escapes).unwrap(), format!("{meant:?}"));
    same("\" a  b \"", &["' a  b '", "\" a  b \"", "\"\\x20a  b\\x20\""]);
}

#[test]
fn skips_block_scalars() {
    for text in ["|", ">-", "|2+", ">1 # note"] {
        let document = format!("a: {text}\n  b: c\n\n   # d\n  e\nf: g\n");
        same("{\"a\" | \"f\" \"g\"}", &[&document]);
    }
    same("[| | ~]", &["- |\n a\n\n- >\n\n  b\n-"]);
    same("{\"a\" | \"b\" ~}", &["a: |\nb:"]);
    same("|", &["|\nwhole\ntext", "--- |\n x\n...\n"]);
}

#[test]
fn a_colon_or_a_hash_within_a_word_is_text() {
    same("{\"a:b\" \"c#d\" \"http://x\" \"-e\"}", &["a:b: c#d\nhttp://x: -e"]);
    same("[\"a:b\" \"-c\" \"?d\"]", &["[a:b, -c, ?d]", "- a:b\n- -c\n- ?d"]);
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
fn errors_are_sentences() {
    let text = |document| format!("{}", read(document).unwrap_err());
    assert_eq!(text("a\n---\nb"), "line 2: a second document is not supported");
    assert_eq!(text("a: b: c"), "line 1: unexpected text");
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

/// Content of a document.
#[derive(Clone, Debug)]
enum Tree {
    Text(String),
    List(List<Tree>),
    Map(List<(String, Tree)>),
}

fn tree() -> impl Strategy<Value = Tree> {
    let word = || {
        prop::collection::vec(prop::sample::select(WORDS), 0..4).prop_map(|words| words.concat())
    };
    let leaf = word().prop_map(Tree::Text);
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Tree::List),
            prop::collection::vec((word(), inner), 0..4).prop_map(Tree::Map),
        ]
    })
}

/// A new line, indented more than any node around it.
const DEEP: &str = "\n                              ";

const WORDS: &[&str] = &[
    "a", "b c", " ", "'", "\"", "\\", ": ", " #", "-", "- ", "\n", "{", "]", ",", "\u{e9}", "~",
    "null", "\t", "?",
];

/// Writes a tree; a list of numbers chooses the notation at each step.
struct Writer<'c> {
    choices: &'c [u8],
    at: usize,
}

impl Writer<'_> {
    fn choose(&mut self, ways: u8) -> u8 {
        self.at += 1;
        self.choices[self.at % self.choices.len()] % ways
    }

    fn text(&mut self, text: &str, out: &mut String) {
        let plain = !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_alphabetic())
            && text != "null";
        match self.choose(3) {
            0 if plain => out.push_str(text),
            1 if !text.contains('\n') => out.push_str(&format!("'{}'", text.replace('\'', "''"))),
            _ => {
                out.push('"');
                for character in text.chars() {
                    match character {
                        '"' | '\\' => out.extend(['\\', character]),
                        '\n' => out.push_str("\\n"),
                        '\t' => out.push_str("\\t"),
                        other if self.choose(4) == 0 => {
                            out.push_str(&format!("\\u{:04x}", u32::from(other)));
                        }
                        other => out.push(other),
                    }
                }
                out.push('"');
            }
        }
    }

    fn flow(&mut self, tree: &Tree, out: &mut String) {
        let gap = |writer: &mut Self, out: &mut String| {
            out.push_str(
                ["", " ", DEEP, " # c\n                              "]
                    [usize::from(writer.choose(4))],
            );
        };
        match tree {
            Tree::Text(text) => self.text(text, out),
            Tree::List(items) => {
                out.push('[');
                for item in items {
                    gap(self, out);
                    self.flow(item, out);
                    gap(self, out);
                    out.push(',');
                }
                out.push_str(" ]");
            }
            Tree::Map(pairs) => {
                out.push('{');
                for (key, value) in pairs {
                    gap(self, out);
                    self.text(key, out);
                    out.push_str(": ");
                    self.flow(value, out);
                    out.push_str(" ,");
                }
                out.push_str(" }");
            }
        }
    }

    /// Writes a value in block style after a key's colon or a dash.
    fn block(&mut self, tree: &Tree, indent: usize, out: &mut String) {
        let pad = |indent: usize| " ".repeat(indent);
        match tree {
            Tree::List(items) if !items.is_empty() && self.choose(3) > 0 => {
                for item in items {
                    out.push_str(&format!("\n{}-", pad(indent)));
                    self.block(item, indent + 2, out);
                }
            }
            Tree::Map(pairs) if !pairs.is_empty() && self.choose(3) > 0 => {
                for (key, value) in pairs {
                    out.push_str(&format!("\n{}", pad(indent)));
                    self.text(key, out);
                    out.push(':');
                    if self.choose(4) == 0 {
                        out.push_str(" # why");
                        out.push_str(&format!("\n{}", pad(indent + 1)));
                    }
                    let deeper = 1 + usize::from(self.choose(3));
                    self.block(value, indent + deeper, out);
                }
            }
            Tree::Text(_) | Tree::List(_) | Tree::Map(_) => {
                out.push(' ');
                self.flow(tree, out);
            }
        }
    }
}

fn meaning(tree: &Tree) -> String {
    match tree {
        Tree::Text(text) => format!("{text:?}"),
        Tree::List(items) => {
            format!("[{}]", items.iter().map(meaning).collect::<List<_>>().join(" "))
        }
        Tree::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| format!("{key:?} {}", meaning(value)));
            format!("{{{}}}", pairs.collect::<List<_>>().join(" "))
        }
    }
}

proptest! {
    #[test]
    fn reads_any_tree_in_any_style(tree in tree(), choices in prop::collection::vec(any::<u8>(), 1..40)) {
        let mut out = String::from("---");
        Writer { choices: &choices, at: 0 }.block(&tree, 0, &mut out);
        out.push('\n');
        let (read, meant) = (read(&out), meaning(&tree));
        prop_assert_eq!(read, Ok(meant), "{}", out);
    }

    #[test]
    fn no_text_causes_a_panic(noise in "[-:?,{}\\[\\]&*!|>'\"%#@`a~ \n\t\\\\1]{0,60}") {
        if let Ok(out) = read(&noise) {
            prop_assert!(!out.is_empty());
        }
    }
}
