//! One attempt to find everything that the agent needs to start: the status port and the host's
//! config files. Applies templates in the same step, while their share is mounted.

use std::path::Path;

use mote_core::flavour::Flavour;
use mote_core::hostapi::policy::Policy;

use crate::built;
use crate::config::files::{self, ConfigFiles};
use crate::first_boot::templates::{self, Applied};
use crate::net::tls::Identity;
use crate::options::Options;
use crate::status::port::{self, Found};
use crate::status::search;

/// Returns the name of the config files for the log line "waiting for".
pub(crate) fn what(options: &Options) -> String {
    match options.config_dir.as_ref().or(options.secrets_dir.as_ref()) {
        Some(directory) => format!("the config files in {}", directory.display()),
        None => "the config share".to_owned(),
    }
}

pub(crate) struct Prepared {
    pub(crate) identity: Identity,
    pub(crate) files: ConfigFiles,
    pub(crate) applied: Applied,
    /// The flavour, if the option, the port or the files show it.
    pub(crate) flavour: Option<Flavour>,
}

/// Finds the port and the files, and applies the allowed templates while the share is mounted. Logs
/// the port if it is not the `known` one. Errors: what is missing, and what to do about it.
pub(crate) fn prepare(
    options: &Options,
    policy: &Policy,
    known: &mut Option<Found>,
) -> Result<Prepared, String> {
    let found = port::find_early(options);
    let by_port = port::flavour(options, &found);
    let (found, no_port) = match found {
        Ok(found) => (Some(found), None),
        Err(why) => (None, Some(why)),
    };
    search::log_change(found, known);
    let (mut identity, mut applied, mut flavour) = (None, Applied::default(), None);
    let mut visit = |place: &Path, files: &ConfigFiles| {
        identity = Some(Identity::load(files)?);
        flavour = options.flavour.or(by_port).or_else(|| flavour_by(files));
        if built::FIRST_BOOT && !options.is_early() {
            let flavour = or_default(flavour);
            applied = templates::apply(place, &options.root, flavour, policy.features);
        }
        Ok(())
    };
    let files = files::find(options, &mut visit).map_err(|why| match no_port {
        // Mention it unless it has the same cause.
        Some(also) if also != why => format!("{why}; no status port either: {also}"),
        Some(_) | None => why,
    })?;
    let identity = identity.ok_or("the files were not checked")?;
    Ok(Prepared { identity, files, applied, flavour })
}

/// Returns the flavour from the option, else the port's name, else the files, else LXD (P§7).
pub(crate) fn or_default(flavour: Option<Flavour>) -> Flavour {
    flavour.unwrap_or(Flavour::Lxd)
}

/// Returns Incus if `agent.conf` has the member that only Incus writes.
pub(crate) fn flavour_by(files: &ConfigFiles) -> Option<Flavour> {
    let conf = files.agent_conf.as_deref()?;
    let known = mote_core::json::Value::parse(conf).ok()?.member("dev_incus");
    known.map(|_| Flavour::Incus)
}
