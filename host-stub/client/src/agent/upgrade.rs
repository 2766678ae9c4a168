//! Connections that change their protocol after one request: sftp, port-forward (P§4.4, P§4.7).

use std::io::{BufRead, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::client::{self, Stream};
use crate::common::limits;
use crate::instance::Instance;
use crate::net::http::{read_answer, unanswered};
use crate::net::pump;
use crate::net::stream::Limit;

/// Limit for connecting, TLS and the upgrade together.
const CONNECT: Duration = Duration::from_secs(10);

/// Asks for `protocol` within the usual time, and returns the connection after the 101.
pub fn upgrade(
    root: &Path,
    instance: &Instance,
    request: (&str, &str),
    protocol: &str,
    body: &[u8],
) -> Result<UnixStream> {
    upgrade_within(root, instance, request, protocol, body, Limit::within(CONNECT))
}

pub fn upgrade_within(
    root: &Path,
    instance: &Instance,
    request: (&str, &str),
    protocol: &str,
    body: &[u8],
    limit: Limit,
) -> Result<UnixStream> {
    let mut stream = client::open(root, instance, limit)?;
    match asked(&mut stream, request, protocol, body) {
        Ok(()) => pump::plain(stream),
        Err(error) => Err(client::explained(error, instance, &mut stream)),
    }
}

fn asked(
    stream: &mut Stream,
    (method, target): (&str, &str),
    protocol: &str,
    body: &[u8],
) -> Result<()> {
    let mut out = format!(
        "{method} {target} HTTP/1.1\r\nHost: custom.socket\r\nUpgrade: {protocol}\r\n\
         Connection: Upgrade\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    out.extend_from_slice(body);
    stream.write_all(&out)?;
    stream.flush()?;
    let (head, rest) = read_head(stream)?;
    let from = [head, rest.clone()].concat();
    let answer = read_answer(&mut from.as_slice().chain(stream), limits::ANSWER)?;
    if answer.status != 101 {
        bail!("status {}: {}", answer.status, client::complaint(&answer.body));
    }
    if answer.header("upgrade") != Some(protocol) {
        bail!("Missing or unexpected Upgrade header in response");
    }
    if !rest.is_empty() {
        // Real hosts discard the buffer with which they read the head (P§4.4).
        bail!("{} bytes came in the same record as the head: real hosts lose them", rest.len());
    }
    Ok(())
}

/// Reads TLS records up to the empty line. Returns the head, and what follows it in the last
/// record.
fn read_head(stream: &mut Stream) -> Result<(Vec<u8>, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = bytes.split_off(at + 4);
            return Ok((bytes, rest));
        }
        if bytes.len() > limits::UPGRADE_HEAD {
            bail!("head too long");
        }
        let mut reader = stream.conn.reader();
        match reader.fill_buf() {
            Ok([]) => return Err(unanswered().into()),
            Ok(record) => {
                let count = record.len();
                bytes.extend_from_slice(record);
                reader.consume(count);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                stream.conn.complete_io(&mut stream.sock)?;
            }
            Err(error) => return Err(error).context("closed without an answer"),
        }
    }
}
