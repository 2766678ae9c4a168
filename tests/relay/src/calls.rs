//! `mote-calls SOCKET TARGET CALLS`: makes that many `GET TARGET` calls one after another, each on
//! a new connection, all of which must be answered. Prints the median of their times in
//! microseconds. It is the benchmark's client in the test image.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Limit for one read. A client that waits longer has failed.
const TIMEOUT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [socket, target, calls] = &args[..] else { return ExitCode::from(2) };
    let Ok(calls) = calls.parse() else { return ExitCode::from(2) };
    let done = run(socket, target, calls);
    done.map_or_else(
        |error| {
            eprintln!("mote-calls: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn run(socket: &str, target: &str, calls: usize) -> Result<()> {
    let request = format!("GET {target} HTTP/1.1\r\nHost: devlxd\r\nConnection: close\r\n\r\n");
    let mut times = Vec::new();
    for _ in 0..calls {
        let begun = Instant::now();
        call(socket, request.as_bytes())?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let median = times.get(calls.div_ceil(2).saturating_sub(1)).copied().unwrap_or_default();
    println!("{}", median.as_micros());
    Ok(())
}

/// Makes one call. The body ends at its length or when the agent hangs up.
fn call(socket: &str, request: &[u8]) -> Result<()> {
    let mut socket = UnixStream::connect(socket)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.write_all(request)?;
    let mut buffer = vec![0; 64 * 1024];
    let mut all = Vec::new();
    let mut body = None;
    loop {
        let count = socket.read(&mut buffer)?;
        all.extend_from_slice(&buffer[..count]);
        if body.is_none()
            && let Some(at) = all.windows(4).position(|four| four == b"\r\n\r\n")
        {
            let head = String::from_utf8_lossy(&all[..at]).to_ascii_lowercase();
            if !head.starts_with("http/1.1 200 ") {
                return Err(Error::other(head.lines().next().unwrap_or_default().to_owned()));
            }
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            body = Some((at + 4, length.and_then(|length| length.trim().parse::<usize>().ok())));
        }
        match body {
            Some((at, Some(length))) if all.len() >= at + length => return Ok(()),
            Some((_, None)) if count == 0 => return Ok(()),
            _ if count == 0 => return Err(ErrorKind::UnexpectedEof.into()),
            _ => {}
        }
    }
}
