//! Parsers of command line values.

use std::collections::BTreeMap;
use std::env::var_os;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use mote_client::common::pair::pair;
use mote_client::instance::share::Device;

/// Returns the directory of the instances: from the option, the environment, or the user's default.
pub(crate) fn directory(said: Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| var_os(name).filter(|value| !value.is_empty());
    if let Some(directory) = said.or_else(|| set("MOTE_HOST_DIR")) {
        return Some(directory.into());
    }
    let state = set("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.or_else(|| Some(Path::new(&set("HOME")?).join(".local/state")));
    Some(state?.join("mote-host"))
}

/// Parses `NAME=MAC[,mtu=N]`, a NIC that the guest renames.
pub(crate) fn nic(text: &str) -> Result<(String, Device)> {
    let (name, rest) = pair(text)?;
    let (address, more) = rest.split_once(',').unwrap_or((&rest, ""));
    let more = more.split(',').filter(|more| !more.is_empty());
    let mut device = more.map(pair).collect::<Result<BTreeMap<String, String>>>()?;
    if device.keys().any(|key| key != "mtu") {
        bail!("a NIC is NAME=MAC[,mtu=N]");
    }
    let about = [("type", "nic"), ("name", name.as_str()), ("hwaddr", address)];
    device.extend(about.map(|(key, value)| (key.to_owned(), value.to_owned())));
    Ok((name, device))
}

/// Parses a context id. The first three are reserved (P§3.2).
pub(crate) fn context_id(text: &str) -> Result<u32> {
    text.parse()
        .ok()
        .filter(|id| *id > 2)
        .with_context(|| format!("{text} is not a guest's context id: the lowest is 3"))
}
