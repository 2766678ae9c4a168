//! Numbered notes below a table of Markdown.

use std::fmt::Write;

/// Notes, each listed once.
#[derive(Clone, Debug, Default)]
pub struct Notes(Vec<String>);

impl Notes {
    /// Returns the number of a note, from 1.
    pub fn number(&mut self, note: String) -> usize {
        let known = self.0.iter().position(|known| *known == note);
        known.unwrap_or_else(|| {
            self.0.push(note);
            self.0.len() - 1
        }) + 1
    }

    pub fn list(&self) -> String {
        let mut text = "\n".to_owned();
        for (number, note) in (1..).zip(&self.0) {
            let _fits = writeln!(text, "{number}. {note}");
        }
        text
    }
}

/// Returns one line that a Markdown table can contain.
pub fn line(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}

pub fn sentence(text: &str) -> String {
    let line = line(text);
    let mut letters = line.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}
