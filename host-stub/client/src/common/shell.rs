//! Quoting for a shell.

pub fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./,=:+@%".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_only_words_that_need_it() {
        assert_eq!(quoted("/a/b-c_d.e,f=g:h@i+j%k"), "/a/b-c_d.e,f=g:h@i+j%k");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("it's a"), "'it'\\''s a'");
    }
}
