//! Tables and figures of the generated pages.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

pub type Head = Vec<(String, Align)>;

pub fn texts<'t>(titles: impl IntoIterator<Item = &'t str>) -> Head {
    titles.into_iter().map(|title| (title.to_owned(), Align::Left)).collect()
}

pub fn numbers<'t>(titles: impl IntoIterator<Item = &'t str>) -> Head {
    titles.into_iter().map(|title| (title.to_owned(), Align::Right)).collect()
}

pub fn table(head: &Head, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let rules = head.iter().map(|(_, align)| match align {
        Align::Left => "---".to_owned(),
        Align::Right => "--:".to_owned(),
    });
    let titles = head.iter().map(|(title, _)| title.clone());
    row(titles) + &row(rules) + &rows.into_iter().map(row).collect::<String>()
}

pub fn row(cells: impl IntoIterator<Item = String>) -> String {
    let cell = |cell: String| if cell.is_empty() { " |".into() } else { format!(" {cell} |") };
    format!("|{}\n", cells.into_iter().map(cell).collect::<String>())
}

pub fn between(page: &str, [begin, end]: [&str; 2], text: &str) -> String {
    let (before, rest) = page.split_once(begin).expect("the begin's mark");
    let (_, after) = rest.split_once(end).expect("the end's mark");
    format!("{before}{begin}{text}{end}{after}")
}

/// Formats a number with a comma every three digits: `12,640,936`.
pub fn grouped(number: u64) -> String {
    match number / 1_000 {
        0 => number.to_string(),
        more => format!("{},{:03}", grouped(more), number % 1_000),
    }
}
