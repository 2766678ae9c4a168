//! The query part of a request target.

/// Returns the raw value of the first query parameter with that name.
#[must_use]
pub fn query<'q>(query: Option<&'q str>, key: &str) -> Option<&'q str> {
    query?.split('&').find_map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (name == key).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_of_a_key_counts() {
        assert_eq!(query(Some("a=1&b=2&a=3"), "a"), Some("1"));
        assert_eq!(query(Some("a=1&b"), "b"), Some(""));
        assert_eq!(query(Some("ab=1"), "a"), None);
        assert_eq!(query(None, "a"), None);
    }
}
