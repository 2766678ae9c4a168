//! Reads `tests/mutants/list` and puts a fault of it into a file, for `scripts/mutants`.

use crate::prelude::*;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mutant {
    pub name: String,
    pub file: String,
    /// The lines to replace, without indentation.
    pub was: Vec<String>,
    pub now: Vec<String>,
    /// The tests that must notice the fault: a test target of cargo, and a filter.
    pub noticed_by: String,
}

pub fn all() -> Vec<Mutant> {
    let text = fs::read_to_string(source::root().join("tests/mutants/list")).expect("the list");
    parse(&text)
}

fn parse(text: &str) -> Vec<Mutant> {
    let mut all: Vec<Mutant> = Vec::new();
    for line in text.lines() {
        let Some((mark, rest)) = line.split_at_checked(1) else { continue };
        let rest = rest.trim().to_owned();
        if mark == "=" {
            all.push(Mutant { name: rest, ..Mutant::default() });
            continue;
        }
        let Some(mutant) = all.last_mut() else { continue };
        match mark {
            "@" => mutant.file = rest,
            "-" => mutant.was.push(rest),
            "+" => mutant.now.push(rest),
            "!" => mutant.noticed_by = rest,
            _ => panic!("{line} of {}", mutant.name),
        }
    }
    all
}

impl Mutant {
    pub fn put_into(&self, text: &str) -> Result<String, String> {
        let lines: Vec<&str> = text.lines().collect();
        let places: Vec<usize> = lines
            .windows(self.was.len())
            .enumerate()
            .filter(|(_, window)| {
                window.iter().zip(&self.was).all(|(line, was)| line.trim() == was)
            })
            .map(|(index, _)| index)
            .collect();
        let [place] = places[..] else {
            return Err(format!(
                "{}: its lines are {} times in {}",
                self.name,
                places.len(),
                self.file
            ));
        };
        let (before, rest) = lines.split_at(place);
        let after = &rest[self.was.len()..];
        let now: Vec<&str> = self.now.iter().map(String::as_str).collect();
        Ok([before, &now, after].concat().join("\n") + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_matches_the_current_source() {
        let all = all();
        for mutant in &all {
            let text = fs::read_to_string(source::root().join(&mutant.file)).expect("a source");
            assert_ne!(mutant.put_into(&text).unwrap(), text, "{}", mutant.name);
            assert!(!mutant.noticed_by.is_empty(), "{}", mutant.name);
        }
        assert!(all.len() >= 30, "{}", all.len());
    }

    #[test]
    fn replaces_only_unique_lines() {
        let list = "about it\n\n= x\n@ a\n- b\n- c\n+ d\n! core x\n";
        let [mutant] = &parse(list)[..] else { panic!("one") };
        assert_eq!(mutant.put_into("a\n  b\n    c\ne\n").unwrap(), "a\nd\ne\n");
        for text in ["a\nb\nd\n", "b\nc\nb\nc\n"] {
            assert!(mutant.put_into(text).is_err(), "{text}");
        }
    }
}
