//! The status channel as real hosts read it: QEMU's ring buffer, by `ringbuf-read` over QMP, after
//! connecting, on every event, and every 10 s without one (P§2.3). It is never written.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::qmp::Qmp;
use crate::daemon::vm::{Monitor, News};
use crate::daemon::{Daemon, Life};

use mote_client::instance::{CONFIG_DISK, Flavour, Instance};

/// Interval of reads without an event (P§2.3).
const POLL: Duration = Duration::from_secs(10);
/// Interval of attempts to connect to QEMU.
const RETRY: Duration = Duration::from_millis(200);

/// Starts a thread that watches an instance's ring until the instance is deleted.
pub fn watch(daemon: &Arc<Daemon>, instance: &Instance, path: PathBuf, life: Life) {
    let (daemon, name, flavour) = (daemon.clone(), instance.name.clone(), instance.flavour);
    let mut was_running = instance.is_running();
    std::thread::spawn(move || {
        while !life.is_over() {
            match Qmp::connect(&path) {
                Ok(mut qmp) => {
                    daemon.vm_found(&name, qmp.orders());
                    if let Err(why) = serve(&daemon, &name, flavour, &mut qmp, &life) {
                        daemon.log(&format!("{name}: QMP: {why:#}"));
                        let rest = qmp.rest();
                        let _deleted = daemon.with(&name, |live| {
                            rest.into_iter().for_each(|news| live.vm.note(news))
                        });
                    }
                    if life.is_over() {
                        return;
                    }
                    // Without a monitor there is no VM.
                    daemon.vm_gone(&name);
                }
                Err(monitor) => {
                    let _deleted = daemon.with(&name, |live| live.vm.monitor = monitor);
                    // It ran under the previous daemon and has ended since.
                    if was_running && monitor == Monitor::Silent {
                        daemon.vm_off(&name);
                    }
                }
            }
            was_running = false;
            std::thread::sleep(RETRY);
        }
    });
}

fn serve(
    daemon: &Arc<Daemon>,
    name: &str,
    flavour: Flavour,
    qmp: &mut Qmp,
    life: &Life,
) -> Result<()> {
    let does = qmp.ask("query-status")?.and_then(|status| Some(status["status"].as_str()?.into()));
    daemon.with(name, |live| live.vm.does = does.unwrap_or_default())?;
    if daemon.with(name, |live| live.vm.is_paused())? {
        // QEMU stopped it before this connection.
        if qmp.ask("query-block")?.as_ref().is_some_and(lacks_room) {
            daemon.with(name, |live| live.vm.note(News::NoSpace))?;
        }
    }
    let mut is_over = false;
    loop {
        let size = json!({"device": "qemu_serial-chardev", "size": 16_384, "format": "utf8"});
        let read = qmp.call("ringbuf-read", &size)?;
        if let Some(error) = read.get("error") {
            // A VM without that device is still a VM.
            let error = error["desc"].as_str().unwrap_or("an error");
            daemon.failed(name, &format!("QMP: {error}"), None);
        }
        if life.is_over() {
            return Ok(());
        }
        let text = read["return"].as_str().unwrap_or("");
        let mut lines: Vec<&str> = text.split('\n').collect();
        // An unfinished line is lost, because reading empties the ring.
        lines.pop();
        daemon.heard(name, &lines, decisive(flavour, &lines));
        if is_over {
            bail!("the VM was shut down");
        }
        if daemon.with(name, |live| !live.agent.started)? {
            // Until the agent reports itself, the bytes read of its config disk show how far the
            // guest is.
            let read = qmp.ask("query-blockstats")?.as_ref().and_then(share_read);
            daemon.with(name, |live| live.vm.share_read = read)?;
        }
        let news = qmp.wait(POLL)?;
        // Its last lines are still in the ring.
        is_over = news.iter().any(|news| matches!(news, News::ShutDown(_)));
        daemon.with(name, |live| news.into_iter().for_each(|news| live.vm.note(news)))?;
    }
}

/// Returns whether a disk's writes failed for lack of space on this machine.
fn lacks_room(blocks: &Value) -> bool {
    let blocks = blocks.as_array().into_iter().flatten();
    blocks.into_iter().any(|block| block["io-status"] == "nospace")
}

/// Returns the number of bytes read of the config disk.
fn share_read(blocks: &Value) -> Option<u64> {
    let is_it = |block: &&Value| block["device"] == CONFIG_DISK;
    blocks.as_array()?.iter().find(is_it)?["stats"]["rd_bytes"].as_u64()
}

/// Returns the decisive line: the last one. Incus from 7.0.1 on uses the one before it if there are
/// two, which is why agents write STOPPED twice (P§2.3).
fn decisive<'a>(flavour: Flavour, lines: &[&'a str]) -> Option<&'a str> {
    let back = match flavour {
        Flavour::Incus if lines.len() > 1 => 2,
        Flavour::Incus | Flavour::Lxd | Flavour::LxdOld => 1,
    };
    lines.len().checked_sub(back).and_then(|at| lines.get(at)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selects_each_servers_line() {
        for (lines, lxd, incus) in [
            (&[][..], None, None),
            (&["STARTED"], Some("STARTED"), Some("STARTED")),
            (&["STARTED", "CONNECTED"], Some("CONNECTED"), Some("STARTED")),
            (&["STARTED", "STOPPED"], Some("STOPPED"), Some("STARTED")),
            (&["STOPPED", "STOPPED"], Some("STOPPED"), Some("STOPPED")),
            (&["a", "b", "c"], Some("c"), Some("b")),
        ] {
            assert_eq!(decisive(Flavour::Lxd, lines), lxd, "{lines:?}");
            assert_eq!(decisive(Flavour::LxdOld, lines), lxd, "{lines:?}");
            assert_eq!(decisive(Flavour::Incus, lines), incus, "{lines:?}");
        }
    }
}
