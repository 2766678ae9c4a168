//! Turns a panic of the harness into an error.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `it` and returns its panic as an error. The harness panics when a deadline is over.
pub(super) fn attempt<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        text.unwrap_or_else(|| "a panic".into())
    })
}
