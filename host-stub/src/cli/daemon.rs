//! `daemon`: runs the host until a signal ends it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use mote_client::common::random;
use mote_client::instance::store;
use mote_client::net::slots;
use mote_stub::control::{self, Host};
use mote_stub::daemon::Daemon;

#[derive(Debug, Args)]
pub(crate) struct DaemonArgs {
    /// The vsock port to listen on [default: random, as real hosts choose one at each start]
    #[arg(long)]
    port: Option<u32>,
    /// End when the last instance is deleted
    #[arg(long)]
    until_empty: bool,
}

/// Runs until a signal arrives.
pub(crate) fn run(root: &Path, args: &DaemonArgs) -> Result<()> {
    let port = args.port.unwrap_or_else(random::port);
    let _lock = store::lock(root)?;
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let daemon = Daemon::new(root, port, None)?;
    let ending = daemon.clone();
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            ending.unbind();
            #[expect(clippy::exit, reason = "the other threads wait for sockets forever")]
            std::process::exit(0);
        }
    });
    slots::raise_descriptor_limit();
    daemon.log(&format!("listening on vsock port {}", daemon.port));
    let host = Host::new(daemon)?;
    if args.until_empty {
        end_when_empty(host.clone());
    }
    control::serve(&host).context("control socket")
}

/// Ends this process when the last instance is deleted, or if none is created.
fn end_when_empty(host: Arc<Host>) {
    const LOOK: Duration = Duration::from_millis(200);
    const FIRST: Duration = Duration::from_secs(30);
    std::thread::spawn(move || {
        let begun = Instant::now();
        let (mut had_some, mut had_none) = (false, false);
        loop {
            std::thread::sleep(LOOK);
            // Locked until the end: an instance added meanwhile would be lost.
            let all = host.daemon.instances();
            let has_none = all.is_empty();
            // At the second check, the deletion of the last one has been answered.
            if has_none && had_none && (had_some || begun.elapsed() > FIRST) {
                host.daemon.unbind();
                #[expect(clippy::exit, reason = "the other threads wait for sockets forever")]
                std::process::exit(0);
            }
            had_some |= !has_none;
            had_none = has_none;
        }
    });
}
