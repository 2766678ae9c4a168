//! Connections that the agent only relays: SFTP sessions, and ports in the guest (P§4.4, P§4.7).
//! The other end echoes each byte.

use smol::future::zip;

use super::calls::{LIMIT, connect};
use super::daemon::Host;
use super::http::{Reader, request};
use crate::programs::pattern;
use crate::sim_prelude::*;

/// A port with an echo server, and one without a listener.
pub(crate) const ECHO: u16 = 7;
const NOBODY: u16 = 8;
/// Bytes per write.
const PIECE: usize = 5_000;

/// Opens a connection, sends data, and checks the echo.
pub(crate) async fn pipe(host: &Rc<Host>) {
    let (sim, before) = (&host.sim, Before::now(&host.oracle));
    let (asks, expected) = asks(host);
    // An agent that is absent or suspended does not answer.
    let Some(Some(stream)) = within(sim, Zone::Host, LIMIT, connect(host)).await else { return };
    let work = async {
        stream.write_all(&asks).await.ok()?;
        let mut reader = Reader::new(&stream);
        let status = reader.message().await.ok()??.status();
        if status != expected {
            sim.fail(format!("an upgrade is answered {status}, not {expected}"));
        }
        if status != 101 {
            return Some(());
        }
        round(host, &stream, reader.rest()).await
    };
    let done = within(sim, Zone::Host, 30 * SECOND, work).await;
    let is_excused = host.net.mishaps.get() > 0
        || host.net.mishaps_inside.get() > 0
        || before.has_ended()
        || before.is_cut()
        || host.may_since.get() >= before.asked;
    if !is_excused && done.flatten().is_none() {
        sim.fail("the data sent is not echoed".into());
    }
}

/// Returns a request for a connection, and the expected status.
fn asks(host: &Host) -> (Vec<u8>, u16) {
    let dice = &host.sim.dice;
    if host.nature.flavour != Flavour::Incus || dice.one_in(2) {
        let upgrade = "Connection: Upgrade\r\nUpgrade: sftp\r\n";
        return (request("GET", "/1.0/sftp", upgrade, ""), 101);
    }
    let port = dice.pick(&[ECHO, ECHO, ECHO, NOBODY]);
    let body = format!("{{\"address\":\"127.0.0.1\",\"port\":{port}}}");
    let upgrade = "Connection: Upgrade\r\nUpgrade: tcp\r\n";
    let status = if port == ECHO { 101 } else { 500 };
    (request("POST", "/1.0/port-forward", upgrade, &body), status)
}

/// Sends data and reads the echo; returns `None` if it is incomplete.
async fn round(host: &Host, stream: &Stream, mut back: Vec<u8>) -> Option<()> {
    let sim = &host.sim;
    let sent = sim.dice.up_to(60_000);
    let write = async {
        for start in (0..sent).step_by(PIECE) {
            let piece = pattern(start, (sent - start).min(PIECE));
            stream.write_all(&piece).await.ok()?;
            if sim.dice.one_in(8) {
                sleep(sim, Zone::Host, sim.dice.between(MILLI, SECOND / 2)).await;
            }
        }
        Some(())
    };
    let read = async {
        let mut piece = [0; 4096];
        while back.len() < sent {
            match stream.read(&mut piece).await {
                Ok(count @ 1..) => back.extend_from_slice(&piece[..count]),
                Ok(_) | Err(_) => break,
            }
        }
    };
    zip(write, read).await;
    if back != pattern(0, back.len()) {
        sim.fail("the forwarded data differs from the data sent".into());
    }
    (back.len() == sent).then_some(())
}
