//! A list of NUL-terminated strings in one buffer, so that a request with a million of them is one
//! allocation.

use alloc::vec::Vec;
use core::ffi::CStr;

use super::Refusal;
use crate::json::{JsonError, Value};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strings {
    bytes: Vec<u8>,
    count: usize,
}

impl Strings {
    /// Appends one string: the JSON strings `strings`, joined by `between`. All strings together
    /// are limited to `most` bytes. Errors: [`Refusal::Json`] if one is not a string or the limit is
    /// exceeded, [`Refusal::Nul`] if one contains a NUL.
    pub(super) fn push_json(
        &mut self,
        strings: &[Value<'_>],
        between: &str,
        most: usize,
    ) -> Result<(), Refusal> {
        let start = self.bytes.len();
        for (index, string) in strings.iter().enumerate() {
            if index > 0 {
                self.bytes.extend_from_slice(between.as_bytes());
            }
            string.unescape(|piece| {
                if self.bytes.len() + piece.len() >= most {
                    return Err(JsonError::TooLong);
                }
                self.bytes.extend_from_slice(piece.as_bytes());
                Ok(())
            })?;
        }
        if self.bytes.get(start..).unwrap_or_default().contains(&0) {
            return Err(Refusal::Nul);
        }
        self.end();
        Ok(())
    }

    /// Appends one string: these pieces joined, which must not contain a NUL.
    pub(super) fn push(&mut self, pieces: &[&str]) {
        for piece in pieces {
            self.bytes.extend_from_slice(piece.as_bytes());
        }
        self.end();
    }

    fn end(&mut self) {
        self.bytes.push(0);
        self.count += 1;
    }

    /// Appends `end`, in place, to the first string that begins with `start`. Later ones have no
    /// effect, and a request may have 300,000 of them.
    pub(super) fn extend(&mut self, start: &str, end: &str) {
        let (mut at, before) = (0, self.bytes.len());
        for string in self.bytes.split(|byte| *byte == 0) {
            at += string.len();
            if string.starts_with(start.as_bytes()) {
                break;
            }
            at += 1;
        }
        if at < before {
            self.bytes.extend_from_slice(end.as_bytes());
            self.bytes.copy_within(at..before, at + end.len());
            if let Some(gap) = self.bytes.get_mut(at..at + end.len()) {
                gap.copy_from_slice(end.as_bytes());
            }
        }
    }

    /// Frees the unused part of the buffer.
    pub(super) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }

    /// Reverses the order of the strings in place: reverses all bytes, then those of each string.
    pub(super) fn reverse(&mut self) {
        if let Some((_last, bytes)) = self.bytes.split_last_mut() {
            bytes.reverse();
            bytes.split_mut(|byte| *byte == 0).for_each(<[u8]>::reverse);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &CStr> {
        let mut rest = self.bytes.as_slice();
        core::iter::from_fn(move || {
            let string = CStr::from_bytes_until_nul(rest).ok()?;
            rest = rest.get(string.to_bytes_with_nul().len()..)?;
            Some(string)
        })
    }

    /// Returns the strings as text; all are UTF-8, because they come from JSON.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|string| string.to_str().unwrap_or_default())
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the size of all strings with their NULs, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_strings_beyond_the_limit() {
        let value = Value::parse(br#""abc""#).unwrap();
        let mut strings = Strings::default();
        assert_eq!(strings.push_json(&[value], "", 4), Ok(()));
        assert_eq!(strings.push_json(&[value, value], "=", 11), Err(JsonError::TooLong.into()));
        assert!(strings.bytes() <= 11);
    }

    #[test]
    fn extends_the_string_that_counts() {
        let mut strings = Strings::default();
        for word in ["", "XPATH=1", "PATH=/bin", "PATH="] {
            strings.push(&[word]);
        }
        strings.extend("PATH=", ":/snap");
        let all: Vec<_> = strings.texts().collect();
        assert_eq!(all, ["", "XPATH=1", "PATH=/bin:/snap", "PATH="]);
    }
}
