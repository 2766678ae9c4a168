//! The others' turn: who moves bytes between two sides that are both as fast as we are never has to
//! wait, and would keep the one thread to itself; so would who reads from a peer that never stops talking,
//! or turns away strangers who never stop calling.

use std::cell::Cell;

use futures_lite::future::yield_now;

/// Reads and writes in one turn: some milliseconds, so that a turn's end costs nothing beside.
const TURN: u32 = 16;

/// How much of a turn is used up.
#[derive(Debug, Default)]
pub(crate) struct Fair(Cell<u32>);

impl Fair {
    /// Before one more read, write or caller: lets others run if there were enough for once.
    pub(crate) async fn one_more(&self) {
        self.0.set(self.0.get() + 1);
        if self.0.get() > TURN {
            self.0.set(1);
            yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;
    use std::rc::Rc;

    use async_executor::LocalExecutor;

    use super::*;
    use crate::reactor::{Async, block_on};
    use crate::stream::Stream;

    /// How often another task has its turn while `talk` has a peer that has said much, and no more.
    fn turns_beside(talk: impl AsyncFnOnce(Stream)) -> u32 {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&[b'x'; 64 * 1024]).unwrap();
        theirs.shutdown(Shutdown::Write).unwrap();
        let stream = Stream::plain(Async::new(ours.into()).unwrap());
        let (executor, turns) = (LocalExecutor::new(), Rc::new(Cell::new(0)));
        let count = turns.clone();
        let other = executor.spawn(async move {
            loop {
                count.set(count.get() + 1);
                yield_now().await;
            }
        });
        block_on(&executor, talk(stream));
        drop(other);
        turns.get()
    }

    #[test]
    fn who_hears_a_peer_that_never_stops_lets_others_run() {
        let turns = turns_beside(async |stream| {
            let mut scrap = [0; 64];
            while stream.read(&mut scrap).await.unwrap() > 0 {}
        });
        assert!(turns >= 32, "{turns}");
    }

    #[test]
    fn who_waits_for_a_peers_end_lets_others_run() {
        let turns = turns_beside(async |stream| stream.close().await);
        assert!(turns >= 8, "{turns}");
    }

    #[test]
    fn who_writes_to_a_peer_that_takes_it_lets_others_run() {
        let turns = turns_beside(async |stream| {
            for _ in 0..64 {
                stream.write_all(b"x").await.unwrap();
            }
        });
        assert!(turns >= 2, "{turns}");
    }
}
