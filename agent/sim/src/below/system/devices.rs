//! Devices, which differ only by the number of changes before them.

use std::path::{Path, PathBuf};

use crate::below::here::here;

/// Unused: `/proc` exists.
pub(crate) const NO_PROC: &str = "there is no /proc";

pub(crate) fn entries(directory: &Path) -> Vec<PathBuf> {
    let here = here();
    let often = here.kernel.plugged.seen();
    (0..often).map(|number| directory.join(number.to_string())).collect()
}

pub(crate) fn without_proc(_: &Path) -> Option<&'static str> {
    None
}
