//! Looks up a command's program in `PATH`, one directory at a time: a request's `PATH` may have a
//! hundred thousand directories, too many to store a path for each.

use core::ffi::CStr;

/// Maximum length of a path on Linux, in bytes with the NUL (`PATH_MAX`).
pub const MAX_PATH: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program<'p> {
    /// Name or path as in the request.
    pub name: &'p CStr,
    /// Value of `PATH`; unused if the name contains a slash.
    pub path: &'p str,
}

impl<'p> Program<'p> {
    /// Returns the directories to try; one empty string if the name is a path. Ignores an empty
    /// part of `PATH`, which would mean the working directory.
    pub fn directories(self) -> impl Iterator<Item = &'p str> {
        let has_path = self.name.to_bytes().contains(&b'/');
        let parts = if has_path { "" } else { self.path };
        let whole = has_path.then_some("");
        whole.into_iter().chain(parts.split(':').filter(|part| !part.is_empty()))
    }

    /// Returns the program's path in this directory; `None` if it is longer than [`MAX_PATH`].
    pub fn place<'b>(self, directory: &str, buffer: &'b mut [u8; MAX_PATH]) -> Option<&'b CStr> {
        let slash: &[u8] = if directory.is_empty() { b"" } else { b"/" };
        let mut at = 0;
        for piece in [directory.as_bytes(), slash, self.name.to_bytes_with_nul()] {
            let end = at + piece.len();
            buffer.get_mut(at..end)?.copy_from_slice(piece);
            at = end;
        }
        CStr::from_bytes_until_nul(buffer).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(name: &CStr, path: &str) -> Vec<String> {
        let program = Program { name, path };
        let mut buffer = [1; MAX_PATH];
        let mut all = Vec::new();
        for directory in program.directories() {
            let place = program.place(directory, &mut buffer);
            all.push(place.map_or("none".into(), |place| place.to_str().unwrap().into()));
        }
        all
    }

    #[test]
    fn searches_each_directory_of_path() {
        assert_eq!(places(c"x", "/a::/b"), ["/a/x", "/b/x"]);
        assert_eq!(places(c"x", ""), [""; 0]);
        assert_eq!(places(c"./x", "/a:/b"), ["./x"]);
        assert_eq!(places(c"/x", "/a"), ["/x"]);
    }

    #[test]
    fn ignores_paths_that_are_too_long() {
        let name = std::ffi::CString::new("n".repeat(MAX_PATH - 4)).unwrap();
        assert_eq!(places(&name, "/a:/ab")[1], "none");
        assert!(places(&name, "/a:/ab")[0].len() == MAX_PATH - 1);
        let name = std::ffi::CString::new("/".repeat(MAX_PATH)).unwrap();
        assert_eq!(places(&name, "/a"), ["none"]);
    }
}
