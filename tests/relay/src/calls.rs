//! `mote-calls SOCKET TARGET CLIENTS CALLS`: makes that many `GET TARGET` calls by that many
//! parallel clients, each on a new connection. Prints one line of `name=value`: times of calls in
//! microseconds, the total time in seconds. The benchmark's client in the test image.
//!
//! `mote-calls --answer SOCKET` answers each connection immediately with a constant: the upper
//! bound for any agent.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Limit for one read. A client that waits longer has failed.
const TIMEOUT: Duration = Duration::from_secs(60);

struct Job {
    socket: String,
    request: String,
    clients: usize,
    calls: usize,
}

#[derive(Default)]
struct Seen {
    /// Durations of the calls that were answered with 200.
    times: Vec<Duration>,
    bytes: usize,
    failed: usize,
    why: String,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [option, socket] = args.as_slice()
        && option == "--answer"
    {
        return answer(socket).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    let [socket, target, clients, calls] = args.as_slice() else { return ExitCode::from(2) };
    let (Ok(clients), Ok(calls)) = (clients.parse(), calls.parse()) else {
        return ExitCode::from(2);
    };
    let request = format!("GET {target} HTTP/1.1\r\nHost: devlxd\r\nConnection: close\r\n\r\n");
    let (seen, took) = run(&Job { socket: socket.clone(), request, clients, calls });
    show(seen, took);
    ExitCode::SUCCESS
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

fn run(job: &Job) -> (Seen, Duration) {
    let (next, start) = (AtomicUsize::new(0), Barrier::new(job.clients + 1));
    let all = Mutex::new(Seen::default());
    let begun = std::thread::scope(|scope| {
        for _ in 0..job.clients {
            scope.spawn(|| {
                start.wait();
                let seen = client(job, &next);
                all.lock().unwrap_or_else(PoisonError::into_inner).add(seen);
            });
        }
        let begun = Instant::now();
        start.wait();
        begun
    });
    (all.into_inner().unwrap_or_else(PoisonError::into_inner), begun.elapsed())
}

fn client(job: &Job, next: &AtomicUsize) -> Seen {
    let mut seen = Seen::default();
    while next.fetch_add(1, Ordering::Relaxed) < job.calls {
        let begun = Instant::now();
        match call(job) {
            Ok(bytes) => {
                seen.times.push(begun.elapsed());
                seen.bytes += bytes;
            }
            Err(error) => {
                seen.failed += 1;
                seen.why = error.to_string();
            }
        }
    }
    seen
}

impl Seen {
    fn add(&mut self, mut other: Self) {
        self.times.append(&mut other.times);
        self.bytes += other.bytes;
        self.failed += other.failed;
        if !other.why.is_empty() {
            self.why = other.why;
        }
    }
}

/// Makes one call. Returns the length of the body, which ends at its length or when the agent hangs
/// up.
fn call(job: &Job) -> Result<usize> {
    let mut socket = UnixStream::connect(&job.socket)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.write_all(job.request.as_bytes())?;
    let mut buffer = vec![0; 64 * 1024];
    let mut head = Vec::new();
    let body_at = loop {
        let count = socket.read(&mut buffer)?;
        if count == 0 {
            return Err(Error::new(ErrorKind::UnexpectedEof, "no whole head"));
        }
        head.extend_from_slice(&buffer[..count]);
        if let Some(at) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let mut have = head.len() - body_at;
    let head = String::from_utf8_lossy(&head[..body_at]).to_ascii_lowercase();
    if !head.starts_with("http/1.1 200 ") {
        return Err(Error::other(head.lines().next().unwrap_or_default().to_owned()));
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length = length.and_then(|length| length.trim().parse::<usize>().ok());
    while length.is_none_or(|length| have < length) {
        match socket.read(&mut buffer)? {
            0 if length.is_some() => {
                return Err(Error::new(ErrorKind::UnexpectedEof, "no whole body"));
            }
            0 => break,
            count => have += count,
        }
    }
    Ok(have)
}

fn show(mut seen: Seen, took: Duration) {
    seen.times.sort_unstable();
    // The smallest time that this percentage of the calls did not exceed.
    let quantile = |percent: usize| {
        let at = (seen.times.len() * percent).div_ceil(100).saturating_sub(1);
        seen.times.get(at).map_or(0, Duration::as_micros)
    };
    println!(
        "answered={} failed={} bytes={} seconds={:.6} p50={} p99={} why={}",
        seen.times.len(),
        seen.failed,
        seen.bytes,
        took.as_secs_f64(),
        quantile(50),
        quantile(99),
        seen.why.replace(' ', "_")
    );
}
