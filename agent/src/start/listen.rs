//! Opens the listener for the host before STARTED is written: the host calls immediately and does
//! not retry a refused connection (P§3.2). Waits for a missing vsock device, except under Incus,
//! which reads the status port instead (P§2.4).

use std::io::ErrorKind;

use mote_core::flavour::Flavour;

use crate::built;
use crate::options::Options;
use crate::runtime::log;
use crate::start::wait::{Missing, Wait, Waited};
use crate::status::port;
use crate::system::modules::{self, NodeWait};
use crate::transport::{AGENT_PORT, Listener, probe_vsock};

pub(crate) enum HostLink {
    /// The listeners for the host, and why the host may be unable to connect.
    Vsock(Vec<Listener>, Option<String>),
    SerialOnly(String),
}

pub(crate) const SERIAL_ONLY: &str = "the host sees this agent only through the status port";

/// Listens as soon as possible; returns `None` if a signal ends the agent first.
/// Errors: what is missing, under `--no-wait`; any error of [`Wait::until`].
pub(crate) fn begin(
    wait: &mut Wait<'_>,
    options: &Options,
    flavour: Flavour,
) -> Result<Option<HostLink>, String> {
    let alone = flavour == Flavour::Incus && built::STATE;
    let node_wait = if options.wait && !alone { NodeWait::None } else { NodeWait::Timeout };
    let mut link = None;
    let mut attempt = || match listen(options, flavour, node_wait) {
        Ok((listeners, doubt)) => {
            link = Some(HostLink::Vsock(listeners, doubt));
            Ok(())
        }
        Err(Missing { why, is_taken: false }) if alone => {
            let why = format!("no vsock: {why}; {SERIAL_ONLY}");
            log::warn(format_args!("{why}"));
            link = Some(HostLink::SerialOnly(why));
            Ok(())
        }
        Err(missing) => Err(missing),
    };
    let waited = wait.until("vsock", &mut attempt)?;
    Ok(link.filter(|_| waited == Waited::Found))
}

/// Loads the vsock modules, and listens. Under LXD a node without a device suffices, as for LXD's
/// agent (P§1.3); then returns and logs that the host cannot call.
/// Errors: no vsock device, driver or node; another process listens on the port.
pub(crate) fn listen(
    options: &Options,
    flavour: Flavour,
    wait: NodeWait,
) -> Result<(Vec<Listener>, Option<String>), Missing> {
    let mut deaf = None;
    if options.transport.is_vsock() {
        let doubt = modules::load_vsock(&options.root, wait)?;
        if let Err(why) = probe_vsock(&options.root) {
            let why = doubt.unwrap_or(why);
            if flavour == Flavour::Incus {
                // Return the error, because Incus reads the status port instead (P§2.4).
                return Err(why.into());
            }
            deaf = Some(format!("{why}; the host cannot call this agent"));
        }
    }
    match options.transport.listen() {
        Ok(listener) => {
            deaf.iter().for_each(|why| log::warn(format_args!("{why}")));
            Ok((vec![listener], deaf))
        }
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            Err(Missing { why: taken(options), is_taken: true })
        }
        Err(error) => Err(format!("cannot listen: {error}").into()),
    }
}

/// Returns an error that names the process that has the status port open: the other agent.
fn taken(options: &Options) -> String {
    let port = port::find(options).ok();
    let who = port.and_then(|port| port::holder(&options.root, &port.path));
    let who = who.map_or_else(String::new, |(pid, name)| format!(": end process {pid} ({name})"));
    format!("another agent listens on vsock port {AGENT_PORT} already{who}")
}
