//! `KEY=VALUE` on the command line.

use anyhow::{Context, Result};

/// Parses `KEY=VALUE`.
pub fn pair(text: &str) -> Result<(String, String)> {
    let (key, value) = text.split_once('=').with_context(|| format!("{text} is not KEY=VALUE"))?;
    Ok((key.to_owned(), value.to_owned()))
}
