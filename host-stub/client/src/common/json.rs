//! JSON from other programs. A document of some MiB may need many times as much memory, so its
//! values are counted before it is parsed.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::limits::VALUES;

/// Parses a document with at most [`VALUES`] values.
pub fn parse(text: &[u8]) -> Result<Value> {
    if values(text) > VALUES {
        bail!("more than {VALUES} values");
    }
    serde_json::from_slice(text).context("not JSON")
}

/// Returns an upper bound of the number of values: each is the first or follows one of these
/// characters.
fn values(text: &[u8]) -> usize {
    let (mut count, mut in_string, mut is_escaped) = (1, false, false);
    for byte in text {
        match (in_string, byte) {
            (true, _) if is_escaped => is_escaped = false,
            (true, b'\\') => is_escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b',' | b':' | b'[' | b'{') => count += 1,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_values_outside_strings() {
        for (text, least, most) in [
            ("7", 1, 1),
            ("[]", 1, 2),
            ("[1,2]", 3, 3),
            (r#"{"a":1,"b":[2]}"#, 4, 7),
            (r#"["a,b:c[d{", "\",,", "\\", 1]"#, 5, 5),
        ] {
            let count = values(text.as_bytes());
            assert!((least..=most).contains(&count), "{text}: {count}");
        }
    }
}
