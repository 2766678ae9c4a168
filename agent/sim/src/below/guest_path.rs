//! File ownership: everything is root's.

use std::path::Path;

pub(crate) fn is_roots_alone(_: &Path) -> bool {
    true
}
