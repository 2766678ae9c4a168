//! A path in the guest that the host names: where a template or a share goes (P§1.7, 1.8).

/// Such a path, kept without its leading slashes: the shell opens it under `/`. Having one is the
/// proof that it leads nowhere else by its text; symbolic links of the guest are the guest's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'p>(&'p str);

impl<'p> Target<'p> {
    /// The only way in. A path that is not absolute is taken as if it were, as LXD does with the
    /// targets of shares.
    #[must_use]
    pub fn parse(path: &'p str) -> Option<Self> {
        let inner = path.trim_matches('/');
        let bad = inner.is_empty()
            || inner.contains('\0')
            || inner.split('/').any(|part| part == "..")
            || inner.split('/').all(|part| part.is_empty() || part == ".");
        (!bad).then_some(Self(inner))
    }

    /// The same, for what must be absolute.
    #[must_use]
    pub fn absolute(path: &'p str) -> Option<Self> {
        if path.starts_with('/') { Self::parse(path) } else { None }
    }

    /// Below the root.
    #[must_use]
    pub fn below_root(self) -> &'p str {
        self.0
    }

    /// Its names, from the root on.
    pub fn parts(self) -> impl Iterator<Item = &'p str> {
        self.0.split('/').filter(|part| !part.is_empty() && *part != ".")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn a_path_that_climbs_or_is_the_root_is_refused() {
        for bad in ["", "/", "//", "/.", "/./", "..", "/a/../b", "/a/..", "../a", "/a\0b"] {
            assert_eq!(Target::parse(bad), None, "{bad}");
        }
        for good in ["/a", "a", "/a/b/", "//a//b", "/a/..b", "/a...", "/.a"] {
            assert!(Target::parse(good).is_some(), "{good}");
        }
        assert_eq!(Target::parse("//mnt/x/").unwrap().below_root(), "mnt/x");
        assert_eq!(Target::parse("/a//./b/").unwrap().parts().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((Target::absolute("a"), Target::absolute("/a")), (None, Target::parse("a")));
    }
}
