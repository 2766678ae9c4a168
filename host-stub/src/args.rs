//! Arguments of a command, taken away as they are understood. What is left over is a mistake.

use std::collections::{BTreeMap, VecDeque};

use anyhow::{Context, Result, bail};

/// What is left of the command line.
pub(crate) type Args = VecDeque<String>;

/// The next one, which has to be there.
pub(crate) fn next(args: &mut Args) -> Result<String> {
    args.pop_front().context("an argument is missing; see --help")
}

/// Refuses what nobody asked for.
pub(crate) fn none_left(args: &Args) -> Result<()> {
    args.front().map_or(Ok(()), |extra| bail!("unexpected argument {extra}"))
}

/// Takes `name VALUE` out of the arguments.
pub(crate) fn option(args: &mut Args, name: &str) -> Option<String> {
    let at = args.iter().position(|arg| arg == name)?;
    drop(args.remove(at));
    args.remove(at)
}

/// Takes `name VALUE` out of the arguments, as a number.
pub(crate) fn number<T: std::str::FromStr>(args: &mut Args, name: &str) -> Result<Option<T>> {
    let Some(text) = option(args, name) else { return Ok(None) };
    text.parse().ok().with_context(|| format!("{name} {text} is no number")).map(Some)
}

/// Takes `name` out of the arguments.
pub(crate) fn flag(args: &mut Args, name: &str) -> bool {
    let at = args.iter().position(|arg| arg == name);
    at.and_then(|at| args.remove(at)).is_some()
}

/// `KEY=VALUE`.
pub(crate) fn pair(text: &str) -> Result<(String, String)> {
    let (key, value) = text.split_once('=').with_context(|| format!("{text} is no KEY=VALUE"))?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Many of them.
pub(crate) fn pairs(args: impl IntoIterator<Item = String>) -> Result<BTreeMap<String, String>> {
    args.into_iter().map(|arg| pair(&arg)).collect()
}
