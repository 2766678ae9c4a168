//! Summaries of samples, and formatting of numbers.

use crate::pages::text::grouped;

/// Summary of several samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Smallest sample.
    pub min: f64,
    /// Median: of an even number, the mean of the two in the middle.
    pub median: f64,
    /// Largest sample.
    pub max: f64,
}

impl Summary {
    /// The summary of these samples; `None` if there are none.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let half = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[half]
        } else {
            sorted[half - 1].midpoint(sorted[half])
        };
        Some(Self { min, median, max })
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
    fn computes_the_median_of_unsorted_samples() {
        assert_eq!(Summary::of(&[]), None);
        let one = Summary { min: 7.0, median: 7.0, max: 7.0 };
        assert_eq!(Summary::of(&[7.0]), Some(one));
        let three = Summary { min: 1.0, median: 2.0, max: 90.0 };
        assert_eq!(Summary::of(&[90.0, 1.0, 2.0]), Some(three));
        let four = Summary { min: 1.0, median: 2.5, max: 90.0 };
        assert_eq!(Summary::of(&[3.0, 90.0, 1.0, 2.0]), Some(four));
    }

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
