//! JSON put together by hand: only the core's `json` writes quotes and brackets.

use std::path::Path;

/// Where they are written.
const HOME: &str = "agent/core/src/json";
/// Pieces of JSON as they look in a literal.
const PIECES: [&str; 12] = [
    r#"{\""#, r#"\"}"#, r#"[\""#, r#"\"]"#, r##"#"{"##, r##"#"["##, r#" '{'"#, r#"('{'"#, r#""{""#,
    r#""}""#, r#""[""#, r#""]""#,
];

/// The lines of an agent's source that write some; tests, which hold what hosts send, may.
pub(crate) fn by_hand(path: &Path, text: &str) -> Vec<String> {
    let is_test = path
        .components()
        .any(|part| ["tests", "tests.rs"].map(Some).contains(&part.as_os_str().to_str()));
    // The simulation has hosts and guests, written apart from the agent.
    if !path.starts_with("agent")
        || path.starts_with("agent/sim")
        || path.starts_with(HOME)
        || is_test
        || path.extension().is_none_or(|kind| kind != "rs")
    {
        return Vec::new();
    }
    let shipped = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = (1..).zip(shipped.lines()).filter(|(_, line)| !line.trim_start().starts_with("//"));
    lines
        .filter(|(_, line)| PIECES.iter().any(|piece| line.contains(piece)) || has_name(line))
        .map(|(number, line)| format!("{}:{number}: {}", path.display(), line.trim()))
        .collect()
}

/// A name's end in a literal. In a sentence a space follows the colon.
fn has_name(line: &str) -> bool {
    line.match_indices(r#"\":"#).any(|(at, end)| !line[at + end.len()..].starts_with(' '))
}

#[test]
fn json_by_hand_is_seen_and_sentences_are_not() {
    let hand = [
        r#"out.push_str("{\"type\":");"#,
        r#"format!("{{\"return\":{code}}}")"#,
        r#"write!(out, "\"{name}\":{value}")"#,
        r#"sync("[\"/1.0\"]")"#,
        r##"sync(r#"["/1.0"]"#)"##,
        r#"String::from("{")"#,
        "out.push('{')",
    ];
    for line in hand {
        assert_eq!(by_hand(Path::new("agent/src/a.rs"), line).len(), 1, "{line}");
        assert!(by_hand(Path::new("agent/core/src/json/a.rs"), line).is_empty());
        assert!(by_hand(Path::new("agent/src/tests.rs"), line).is_empty());
        assert!(by_hand(Path::new("agent/src/a.rs"), &format!("// {line}")).is_empty());
        let tested = format!("#[cfg(test)]\nmod tests {{\n{line}\n}}");
        assert!(by_hand(Path::new("agent/src/a.rs"), &tested).is_empty());
    }
    for line in
        [r#"format!("Failed to run \"{name}\": {error}")"#, r#"format!("{}", x)"#, "Some(b'{')"]
    {
        assert!(by_hand(Path::new("agent/src/a.rs"), line).is_empty(), "{line}");
    }
}
