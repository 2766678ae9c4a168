//! Searches for the status port, with one message for each new obstacle.

use std::io::ErrorKind;
use std::time::Duration;

use mote_core::time::Uptime;

use crate::options::Options;
use crate::runtime::{Async, LATER_LOOK_INTERVAL, LOOK_INTERVAL, log, look_interval, now};
use crate::status::port::{Found, ONE, Port, busy, find, watched};
use crate::sys::sandbox;

/// How long a busy port is not reported: a forked child has a copy of a just closed descriptor
/// until its exec, and a killed agent's descriptor is closed after its lock.
const BUSY: Duration = Duration::from_secs(1);

/// Logs the port in use and its possible problem, each if it differs from `known`.
pub(crate) fn log_change(found: Option<Found>, known: &mut Option<Found>) {
    let Some(found) = found else { return };
    let before = known.as_ref();
    if before.map(|known| (&known.path, known.flavour)) != Some((&found.path, found.flavour)) {
        log::info(format_args!("port {} ({})", found.path.display(), found.flavour.name()));
    }
    if let Some(doubt) = &found.doubt
        && before.and_then(|known| known.doubt.as_ref()) != Some(doubt)
    {
        log::warn(format_args!("{doubt}"));
    }
    *known = Some(found);
}

#[derive(Default)]
pub(crate) struct Search {
    /// The last message; empty after a loss.
    trouble: Option<String>,
    /// Whether another process has the port open.
    busy: Busy,
    /// When the port went missing.
    pub(super) missing: Option<Uptime>,
}

/// Whether another process has the port open.
#[derive(Clone, Copy, Default)]
enum Busy {
    #[default]
    No,
    Since(Uptime),
    Reported,
}

pub(crate) enum Looked {
    /// The port is now open; the flag shows whether it was missing before.
    Open(Found, Async<Port>, bool),
    /// The port is not open; contains the message to log, if it is new.
    Shut(Option<String>),
    /// The port differs from the only one that the sandbox can open.
    Barred,
}

impl Search {
    /// Searches once, and opens the port if it exists.
    pub(crate) fn look(&mut self, options: &Options) -> Looked {
        let why = match find(options) {
            Ok(found) => match Port::open(&found.path).and_then(watched) {
                Ok(port) => {
                    (self.busy, self.missing) = (Busy::No, None);
                    return Looked::Open(found, port, self.trouble.take().is_some());
                }
                Err(error) if error.kind() == ErrorKind::ResourceBusy => match self.busy {
                    Busy::No => {
                        self.busy = Busy::Since(now());
                        return Looked::Shut(None);
                    }
                    Busy::Since(since) if now() - since >= BUSY => {
                        self.busy = Busy::Reported;
                        busy(&options.root, &found.path)
                            .unwrap_or_else(|| format!("{} is busy: {ONE}", found.path.display()))
                    }
                    Busy::Since(_) | Busy::Reported => return Looked::Shut(None),
                },
                Err(error)
                    if error.kind() == ErrorKind::PermissionDenied && sandbox::is_entered() =>
                {
                    return Looked::Barred;
                }
                Err(error) => format!("cannot open {}: {error}", found.path.display()),
            },
            Err(why) => {
                self.busy = Busy::No;
                why
            }
        };
        self.missing.get_or_insert_with(now);
        let news = self.trouble.as_ref() != Some(&why);
        Looked::Shut(news.then(|| self.trouble.insert(why).clone()))
    }

    pub(crate) fn lost(&mut self) {
        // An empty message differs from any other, so that the next one is logged.
        self.trouble = Some(String::new());
    }

    pub(crate) fn pause(&self) -> Duration {
        match (self.busy, self.missing) {
            (Busy::Since(_), _) => LOOK_INTERVAL,
            (Busy::No | Busy::Reported, Some(since)) => look_interval(since),
            (Busy::No | Busy::Reported, None) => LATER_LOOK_INTERVAL,
        }
    }
}
