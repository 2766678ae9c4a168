//! Eviction of idle connections: the agent answers a new client immediately, however many others
//! there are.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mote_tests::Pair;
use mote_tests::attack::more_descriptors;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// More than the limit of connections, and as many as fit in the kernel's queue.
const MANY: usize = 4000;

const GET: &[u8] = b"GET /1.0/config/user.foo HTTP/1.1\r\nHost: x\r\n\r\n";

fn pair() -> Pair {
    more_descriptors();
    let big = format!("user.big={}", "x".repeat(120_000));
    Pair::start("lxd", &["user.foo=bar", &big])
}

fn said(pair: &Pair, bytes: &[u8]) -> UnixStream {
    let mut stream = pair.connect();
    stream.write_all(bytes).expect("room for it");
    stream
}

/// Sends a request in two pieces. Returns whether it was answered; a kept connection may be closed
/// before that.
fn asked(stream: &mut UnixStream, asked_before: u32) -> bool {
    let (first, second) = GET.split_at(20);
    let sent = stream.write_all(first).and_then(|()| stream.write_all(second));
    let mut answer = [0; 512];
    let count = sent.and_then(|()| stream.read(&mut answer)).unwrap_or(0);
    if count == 0 {
        assert!(asked_before > 0, "a client that has just come is let go");
        return false;
    }
    let answer = String::from_utf8_lossy(&answer[..count]);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nbar"), "{answer}");
    true
}

#[test]
fn active_clients_lose_nothing_next_to_idle_ones() {
    let pair = pair();
    let done = AtomicBool::new(false);
    let active = || {
        let mut answers = 0;
        while !done.load(Ordering::Relaxed) {
            let mut stream = pair.connect();
            // A client must expect that a kept connection is closed: one that was not scheduled for
            // 50 ms was idle.
            answers += (0..3).take_while(|before| asked(&mut stream, *before)).count();
        }
        answers
    };
    std::thread::scope(|threads| {
        let active: Vec<_> = (0..4).map(|_| threads.spawn(active)).collect();
        let mut resting = Vec::new();
        for number in 0..MANY {
            let words: &[u8] = match number % 4 {
                0 => b"",
                1 => b"GET / HT",
                2 => b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                _ => b"PATCH /1.0 HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n{",
            };
            resting.push(said(&pair, words));
        }
        std::thread::sleep(Duration::from_millis(500));
        done.store(true, Ordering::Relaxed);
        for thread in active {
            let answers = thread.join().unwrap();
            println!("{answers} answers");
            assert!(answers > 0);
        }
    });
}

#[test]
fn closes_a_client_that_does_not_disconnect() {
    let pair = pair();
    let mut stream = said(&pair, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(stream.read(&mut [0; 512]).unwrap() > 0);
    // Closed, not only shut down.
    let mut look = [PollFd::new(&stream, PollFlags::empty())];
    let _closed = poll(&mut look, Some(&Timespec { tv_sec: 60, tv_nsec: 0 }));
    assert!(look[0].revents().contains(PollFlags::HUP));
}
