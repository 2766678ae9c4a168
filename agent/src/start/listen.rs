//! Opens the listener for the host before STARTED is written, because the host calls at once and
//! does not retry a refused connection (P§3.2). Waits for a missing vsock device, except under
//! Incus, which reads the status port instead (P§2.4).

use std::io::ErrorKind;

use mote_core::flavour::Flavour;

use crate::built;
use crate::options::Options;
use crate::runtime::log;
use crate::start::error::StartError;
use crate::start::wait::{Wait, Waited};
use crate::status::port;
use crate::system::missing::Missing;
use crate::system::modules;
use crate::system::modules::NodeWait;
use crate::transport::{AGENT_PORT, Listener, probe_vsock};

/// How the host reaches the agent.
pub(crate) enum Way {
    /// It connects to these listeners; or why it cannot.
    Calls(Vec<Listener>, Option<String>),
    /// It only reads the status port, for this reason.
    PortAlone(String),
}

/// Message for [`Way::PortAlone`].
pub(crate) const PORT_ALONE: &str = "the host sees this agent by the status port alone";

/// Why the agent cannot listen.
pub(crate) enum ListenError {
    /// No vsock device, driver or node.
    NoVsock(String),
    /// Another process listens on the port.
    Taken(String),
}

/// Listens as soon as possible; returns `None` if a signal asked the agent to end before.
///
/// # Errors
/// What is missing, under `--no-wait`; any error of [`Wait::until`].
pub(crate) fn begin(
    wait: &mut Wait<'_>,
    options: &Options,
    flavour: Flavour,
) -> Result<Option<Way>, StartError> {
    let alone = flavour == Flavour::Incus && built::STATE;
    let node_wait = if options.wait && !alone { NodeWait::None } else { NodeWait::Timeout };
    let mut way = None;
    let mut attempt = || match listen(options, flavour, node_wait) {
        Ok((listeners, doubt)) => {
            way = Some(Way::Calls(listeners, doubt));
            Ok(())
        }
        Err(ListenError::NoVsock(why)) if alone => {
            let why = format!("no vsock: {why}; {PORT_ALONE}");
            log::warn(format_args!("{why}"));
            way = Some(Way::PortAlone(why));
            Ok(())
        }
        Err(ListenError::NoVsock(why)) => Err(Missing::Other(why)),
        Err(ListenError::Taken(why)) => Err(Missing::Taken(why)),
    };
    let waited = wait.until("vsock", &mut attempt)?;
    Ok(way.filter(|_| waited == Waited::Found))
}

/// Loads the modules that vsock needs, and listens. Under LXD a node without a device suffices, as
/// for its own agent (P§1.3); returns and logs that the host cannot call.
///
/// # Errors
/// [`ListenError`].
pub(crate) fn listen(
    options: &Options,
    flavour: Flavour,
    wait: NodeWait,
) -> Result<(Vec<Listener>, Option<String>), ListenError> {
    let mut deaf = None;
    if options.transport.is_vsock() {
        let doubt = modules::load_vsock(&options.root, wait)
            .map_err(|why| ListenError::NoVsock(why.to_string()))?;
        if let Err(why) = probe_vsock(&options.root) {
            let why = doubt.unwrap_or_else(|| why.to_string());
            if flavour == Flavour::Incus {
                // It has the status port instead (P§2.4).
                return Err(ListenError::NoVsock(why));
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
            Err(ListenError::Taken(taken(options)))
        }
        Err(error) => Err(ListenError::NoVsock(format!("cannot listen: {error}"))),
    }
}

/// Error message naming the process that has the status port open, which is the other agent.
fn taken(options: &Options) -> String {
    let port = port::find(options).ok();
    let who = port.and_then(|port| port::holder(&options.root, &port.path));
    let who = who.map_or_else(String::new, |(pid, name)| format!(": end process {pid} ({name})"));
    format!("another agent listens on vsock port {AGENT_PORT} already{who}")
}
