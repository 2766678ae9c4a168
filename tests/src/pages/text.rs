//! Numbers as the pages in `docs/` write them.

/// With a comma every three digits: `12,640,936`.
pub fn grouped(number: u64) -> String {
    match number / 1_000 {
        0 => number.to_string(),
        more => format!("{},{:03}", grouped(more), number % 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_stand_between_groups_only() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (12_040_009, "12,040,009")]
        {
            assert_eq!(grouped(number), text);
        }
    }
}
