//! `daemon`: runs the host until it is told to end.

use std::path::Path;

use anyhow::{Context, Result};
use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::common::random;
use crate::control::host::Host;
use crate::control::server;
use crate::daemon::Daemon;
use crate::instance::store;
use crate::net::slots;

/// `daemon`.
#[derive(Debug, Args)]
pub(crate) struct DaemonArgs {
    /// The vsock port to listen on; otherwise one is chosen, as real hosts do at each start
    #[arg(long)]
    port: Option<u32>,
}

/// Runs until a signal comes.
pub(crate) fn run(root: &Path, args: &DaemonArgs) -> Result<()> {
    let port = args.port.map_or_else(random::port, Ok)?;
    let _lock = store::lock(root)?;
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let daemon = Daemon::new(root, port, None)?;
    let ending = daemon.clone();
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            ending.unbind();
            #[expect(clippy::exit, reason = "the other threads wait for sockets for ever")]
            std::process::exit(0);
        }
    });
    slots::raise_descriptor_limit();
    daemon.log(&format!("listening on vsock port {}", daemon.port));
    server::serve(&Host::new(daemon)?).context("control socket")
}
