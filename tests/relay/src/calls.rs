//! `mote-calls SOCKET TARGET CALLS`: makes that many `GET TARGET` calls one after another, each on a
//! new connection, all of which must be answered. Prints the median of their times, microseconds.
//! The benchmark's client in the test image.
//!
//! `mote-calls --answer SOCKET` answers each connection immediately with a constant: the upper
//! bound for any agent.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Limit for one read. A client that waits longer has failed.
const TIMEOUT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["--answer", socket] => answer(socket),
        [socket, target, calls] => match calls.parse() {
            Ok(calls) => run(socket, target, calls),
            Err(_) => return ExitCode::from(2),
        },
        _ => return ExitCode::from(2),
    };
    done.map_or_else(
        |error| {
            eprintln!("mote-calls: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

/// devlxd's answer to `GET /`.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\
    Connection: close\r\n\r\n[\"/1.0\"]\n";

fn answer(path: &str) -> Result<()> {
    let listener = UnixListener::bind(path)?;
    let mut buffer = [0; 1024];
    loop {
        let (mut socket, _) = listener.accept()?;
        let _request = socket.read(&mut buffer)?;
        socket.write_all(ANSWER)?;
    }
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
