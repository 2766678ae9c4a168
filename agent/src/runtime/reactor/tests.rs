//! The reactor alone: real sockets, real time.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use smol::future::FutureExt;
use smol::future::{yield_now, zip};

use super::*;
use smol::LocalExecutor;

use crate::runtime::clock::{sleep, within};
use crate::runtime::run::block_on;

fn run<T>(future: impl Future<Output = T>) -> T {
    block_on(&LocalExecutor::new(), future)
}

fn pair() -> (Async<UnixStream>, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Async::new(ours).unwrap(), theirs)
}

async fn read(from: &Async<UnixStream>) -> Vec<u8> {
    let mut piece = [0; 64];
    let count = from.read_with(|mut socket| socket.read(&mut piece)).await.unwrap();
    piece[..count].to_vec()
}

fn waiting() -> (usize, usize) {
    REACTOR.with(|reactor| {
        let sources = reactor.sources.borrow().iter().flatten().count();
        (sources, timers::waiting())
    })
}

#[test]
fn every_change_is_told_to_all_who_wait_for_it() {
    let (ours, mut theirs) = pair();
    run(async {
        for turn in 0..100_u8 {
            let writer = async {
                yield_now().await;
                theirs.write_all(&[turn]).unwrap();
                theirs.write_all(&[turn]).unwrap();
            };
            let (first, second) = zip(
                async {
                    ours.readable().await.unwrap();
                    read(&ours).await
                },
                zip(ours.readable(), writer),
            )
            .await;
            second.0.unwrap();
            assert_eq!(first, [turn, turn]);
        }
    });
}

#[test]
fn who_waits_for_room_gets_on_when_there_is_some() {
    let (ours, mut theirs) = pair();
    let sent = 4 * 1024 * 1024;
    let reader = std::thread::spawn(move || {
        let (mut all, mut piece) = (0, vec![0; 10_000]);
        while let Ok(count @ 1..) = theirs.read(&mut piece) {
            all += count;
        }
        all
    });
    run(async {
        let mut left = sent;
        while left > 0 {
            let piece = vec![1; left.min(100_000)];
            left -= ours.write_with(|mut socket| socket.write(&piece)).await.unwrap();
        }
    });
    drop(ours);
    assert_eq!(reader.join().unwrap(), sent);
}

#[test]
fn a_hang_up_is_a_change_even_behind_bytes_that_nobody_reads() {
    let (ours, mut theirs) = pair();
    run(async {
        let left = async {
            ours.readable().await.unwrap();
            ours.readable().await.unwrap();
            true
        };
        let leave = async {
            yield_now().await;
            theirs.write_all(b"unread").unwrap();
            sleep(Duration::from_millis(20)).await;
            drop(theirs);
            pending_for_long().await
        };
        assert!(left.or(leave).await);
    });
}

async fn pending_for_long() -> bool {
    sleep(Duration::from_secs(20)).await;
    false
}

#[test]
fn what_was_waited_for_leaves_nothing_behind() {
    run(async {
        let (ours, _theirs) = pair();
        assert!(within(Duration::from_millis(1), ours.readable()).await.is_none());
        assert!(within(Duration::from_secs(60), yield_now()).await.is_some());
        assert_eq!(waiting(), (1, 0));
    });
    assert_eq!(waiting(), (0, 0));
}

#[test]
fn places_are_used_again() {
    run(async {
        for _ in 0..100 {
            let (ours, _theirs) = pair();
            assert!(within(Duration::ZERO, ours.readable()).await.is_none());
        }
    });
    assert_eq!(REACTOR.with(|reactor| reactor.sources.borrow().len()), 1);
}

#[test]
fn a_descriptor_that_cannot_be_waited_for_says_so() {
    let file = Async::new_nonblocking(std::fs::File::open("/proc/self/exe").unwrap());
    assert!(run(file.readable()).is_err());
    assert_eq!(waiting(), (0, 0));
}
