//! Tests with real sockets in real time.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::LazyLock;
use std::time::Instant;

use smol::future::{FutureExt, yield_now, zip};

use super::*;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

fn now() -> Duration {
    START.elapsed()
}

fn run<T>(future: impl Future<Output = T>) -> T {
    block_on(future, now, || None)
}

async fn sleep(duration: Duration) {
    Timer::at(now() + duration).await;
}

async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    async { Some(future.await) }
        .or(async {
            sleep(limit).await;
            None
        })
        .await
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
fn an_edge_wakes_every_task_that_waits_for_it() {
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
fn a_write_continues_when_there_is_room() {
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
fn a_hang_up_is_an_edge_even_behind_unread_input() {
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
fn dropped_waits_and_descriptors_are_unregistered() {
    run(async {
        let (ours, _theirs) = pair();
        assert!(within(Duration::from_millis(1), ours.readable()).await.is_none());
        assert!(within(Duration::from_secs(60), yield_now()).await.is_some());
        assert_eq!(waiting(), (1, 0));
    });
    assert_eq!(waiting(), (0, 0));
}

#[test]
fn keys_are_reused() {
    run(async {
        for _ in 0..100 {
            let (ours, _theirs) = pair();
            assert!(within(Duration::ZERO, ours.readable()).await.is_none());
        }
    });
    assert_eq!(REACTOR.with(|reactor| reactor.sources.borrow().len()), 1);
}

#[test]
fn a_descriptor_that_epoll_does_not_support_is_an_error() {
    let file = Async::new_nonblocking(std::fs::File::open("/proc/self/exe").unwrap()).unwrap();
    assert!(run(file.readable()).is_err());
    assert_eq!(waiting(), (0, 0));
}
