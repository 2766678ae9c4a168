//! Calls from the host (commands, files) by `mote-host`, the same client for all agents.
//! The time of a call is that of its process, TLS connections included.

use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use mote_client::agent::client::dial;
use mote_client::net::stream::Limit;
use ring::aead::{AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

use super::book::Found;
use super::rows::SINK;
use super::start::Visit;
use crate::{Host, NAME, attempt, noise, plain, wait};

const COMMANDS: u32 = 8;
/// Where `mote-sink` listens.
const SINK_PORT: u32 = 4321;
/// What a record holds, bytes.
const RECORD: usize = 16 * 1024;
/// Size of files and outputs, bytes.
const BYTES: usize = 16 << 20;

/// All rows; a failure of one does not affect the others.
pub(super) fn all(visit: &mut Visit) -> Found {
    let (host, scratch) = (&visit.world.host, visit.world.scratch.0.as_path());
    let file = scratch.join("sent");
    std::fs::write(&file, noise(BYTES)).expect("a file");
    let mut found = commands(host);
    found.extend([
        ("put", attempt(|| rate(|| host.ok(&["file", "push", NAME, plain(&file), "/tmp/sent"])))),
        ("get", attempt(|| rate(|| get(host, &file, &scratch.join("back"))))),
    ]);
    found
}

/// Commands per second. Failed ones are noted and not counted: on a busy machine LXD 5.0.2 loses
/// some that end before all of their sockets are connected.
fn commands(host: &Host) -> Found {
    let (begun, mut done, mut why) = (Instant::now(), 0.0, None);
    for _ in 0..COMMANDS {
        match host.exec(&["true"]) {
            Ok(_) => done += 1.0,
            Err(error) => why = Some(error),
        }
    }
    let mut found = vec![("exec", Ok(done / begun.elapsed().as_secs_f64()))];
    if let Some(why) = why {
        let failed = f64::from(COMMANDS) - done;
        found.push(("exec", Err(format!("{failed} of {COMMANDS} commands failed: {why}"))));
    }
    found
}

fn get(host: &Host, sent: &Path, back: &Path) {
    host.ok(&["file", "pull", NAME, "/tmp/sent", plain(back)]);
    let same = std::fs::read(sent).expect("the file") == std::fs::read(back).expect("the file");
    assert!(same, "the file came back changed");
}

/// Rate of a transfer of [`BYTES`], MB/s.
fn rate(mut moves: impl FnMut()) -> f64 {
    let begun = Instant::now();
    moves();
    let bytes = u32::try_from(BYTES).expect("a few MiB");
    f64::from(bytes) / begun.elapsed().as_secs_f64() / 1e6
}

/// Measures the row of a program that only receives: `mote-sink` in the guest.
pub(super) fn sink(visit: &mut Visit) -> Found {
    // The page has this row only for mote's VMs.
    if visit.column.program().is_some() {
        return Vec::new();
    }
    let count = BYTES / RECORD;
    let start = format!("start-stop-daemon -S -b -x /opt/sink -- {SINK_PORT} /tmp/sunk {count}");
    let _started = visit.guest.ok(&start);
    let (instance, limit) = (visit.world.host.instance(), Limit::Each(Duration::from_secs(60)));
    let dial = || dial(&instance, SINK_PORT, limit).ok();
    let (mut socket, _) = wait("the sink", Duration::from_secs(10), dial);
    let mut said = [0];
    socket.read_exact(&mut said).expect("the cipher's name");
    let sealed = records(if said == *b"A" { &AES_256_GCM } else { &CHACHA20_POLY1305 });
    let rate = rate(|| {
        socket.write_all(&sealed).expect("a sink that reads");
        socket.read_exact(&mut said).expect("the end");
    });
    let size = visit.guest.ok("wc -c </tmp/sunk; rm /tmp/sunk");
    assert_eq!(size.trim(), BYTES.to_string());
    vec![(SINK, Ok(rate))]
}

/// [`BYTES`] in records as `mote-sink` opens them.
fn records(algorithm: &'static Algorithm) -> Vec<u8> {
    let key = LessSafeKey::new(UnboundKey::new(algorithm, &[0; 32]).expect("a key's length"));
    let mut all = Vec::new();
    for (number, piece) in (0_u64..).zip(noise(BYTES).chunks(RECORD)) {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&number.to_be_bytes());
        let nonce = Nonce::assume_unique_for_key(nonce);
        let mut record = piece.to_vec();
        key.seal_in_place_append_tag(nonce, Aad::empty(), &mut record).expect("a short record");
        all.append(&mut record);
    }
    all
}
