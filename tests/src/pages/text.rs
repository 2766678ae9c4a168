//! Numbers as the pages in `docs/` write them.

/// With a comma every three digits: `12,640,936`.
pub fn grouped(number: u64) -> String {
    match number / 1_000 {
        0 => number.to_string(),
        more => format!("{},{:03}", grouped(more), number % 1_000),
    }
}

/// Formats a number with at least three significant digits, and commas.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        // A whole number has no decimals.
        _ if value.fract() == 0.0 => 0,
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.9995 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    // NaN, infinity and numbers beyond `u64` stay as they are.
    let digits = digits.parse().map_or_else(|_| digits.to_owned(), grouped);
    format!("{sign}{digits}{rest}")
}

/// Formats a ratio with at least three digits.
pub fn times(ratio: f64) -> String {
    let digits = usize::from(ratio < 99.95) + usize::from(ratio < 9.995);
    format!("{ratio:.digits$}×")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_numbers_with_three_digits_and_commas() {
        for (value, text) in [
            (900_432.0, "900,432"),
            (12_640_936.0, "12,640,936"),
            (1234.4, "1,234"),
            (137.26, "137"),
            (13.26, "13.3"),
            (1.306, "1.31"),
            (0.0791, "0.079"),
            (-1500.0, "-1,500"),
            (-150.0, "-150"),
            (99.97, "100"),
            (9.997, "10.0"),
            (1.0, "1"),
            (0.0, "0"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!(["14.0×", "2.50×", "120×"], [13.96, 2.5, 119.6].map(times));
    }
}
