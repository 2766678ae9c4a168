//! A path in the guest that the host names, for a template or a share (P§1.7, P§1.8).

/// A checked path without its outer slashes, which the shell opens below `/`. It has no `..` and is
/// not the root. Symbolic links are resolved elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'p>(&'p str);

impl<'p> Target<'p> {
    /// Checks a path; returns `None` for the root or a path with `..` or NUL. A relative path
    /// counts as absolute, like a share's target in LXD.
    pub fn parse(path: &'p str) -> Option<Self> {
        let inner = path.trim_matches('/');
        let bad = inner.is_empty()
            || inner.contains('\0')
            || inner.split('/').any(|part| part == "..")
            || inner.split('/').all(|part| part.is_empty() || part == ".");
        (!bad).then_some(Self(inner))
    }

    /// Works like [`Target::parse`], but rejects relative paths.
    pub fn absolute(path: &'p str) -> Option<Self> {
        if path.starts_with('/') { Self::parse(path) } else { None }
    }

    /// Returns the path relative to `/`.
    pub fn below_root(self) -> &'p str {
        self.0
    }

    /// Returns the path's components, without empty ones and `.`.
    pub fn parts(self) -> impl Iterator<Item = &'p str> {
        self.0.split('/').filter(|part| !part.is_empty() && *part != ".")
    }
}
