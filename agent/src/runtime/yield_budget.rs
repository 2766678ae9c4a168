//! Cooperative budget. A task whose peer is always ready (a fast relay, endless data or
//! connections) would never wait and block the thread, so it yields after some operations.

use std::cell::Cell;

use smol::future::yield_now;

/// Operations before a yield: a few milliseconds, so that the yield's own cost is negligible.
const BUDGET: u32 = 16;

#[derive(Debug, Default)]
pub(crate) struct Fair(Cell<u32>);

impl Fair {
    /// Call before each read, write or accept: yields to other tasks if the budget is used up.
    pub(crate) async fn one_more(&self) {
        self.0.set(self.0.get() + 1);
        if self.0.get() > BUDGET {
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
    use std::sync::mpsc::channel;

    use crate::runtime::reactor::Async;
    use smol::LocalExecutor;

    use super::*;
    use crate::config::files::ConfigFiles;
    use crate::net::stream::Stream;
    use crate::net::tls::{Identity, pem_fingerprint};
    use crate::runtime::{Semaphore, block_on};

    /// Returns how often another task runs while `talk` has a peer that has sent 64 KiB and closed.
    fn runs_beside(talk: impl AsyncFnOnce(Stream)) -> u32 {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&[b'x'; 64 * 1024]).unwrap();
        theirs.shutdown(Shutdown::Write).unwrap();
        runs(async |_| talk(Stream::plain(Async::new(ours.into()).unwrap())).await)
    }

    /// Returns how often another task runs, since `talk` set that number to 0.
    fn runs(talk: impl AsyncFnOnce(&Cell<u32>)) -> u32 {
        let (executor, runs) = (LocalExecutor::new(), Rc::new(Cell::new(0)));
        let count = runs.clone();
        let other = executor.spawn(async move {
            loop {
                count.set(count.get() + 1);
                yield_now().await;
            }
        });
        block_on(&executor, talk(&runs));
        drop(other);
        runs.get()
    }

    #[test]
    fn a_peer_that_is_always_ready_does_not_block_other_tasks() {
        let read = runs_beside(async |stream| {
            let mut scrap = [0; 64];
            while stream.read(&mut scrap).await.unwrap() > 0 {}
        });
        let close = runs_beside(async |stream| stream.close().await);
        let write = runs_beside(async |stream| {
            for _ in 0..64 {
                stream.write_all(b"x").await.unwrap();
            }
        });
        assert!(read >= 32 && close >= 8 && write >= 2, "{read} {close} {write}");
    }

    #[test]
    fn receiving_without_plaintext_yields_to_other_tasks() {
        let made = rcgen::generate_simple_self_signed(Vec::new()).unwrap();
        let pem = made.cert.pem().into_bytes();
        let identity = Identity::load(&ConfigFiles {
            agent_crt: pem.clone(),
            agent_key: made.signing_key.serialize_pem().into_bytes(),
            server_crt: pem.clone(),
            ..ConfigFiles::default()
        })
        .unwrap();
        let client = identity.client(pem_fingerprint(&pem).unwrap()).unwrap();
        let server = identity.server().unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (sent, all_sent) = channel();
        std::thread::spawn(move || {
            block_on(&LocalExecutor::new(), async {
                let socket = Async::new(theirs.into()).unwrap();
                let slot = Rc::new(Semaphore::new(2)).try_take().unwrap();
                let stream = Stream::accept(socket, server, &slot).await.unwrap();
                // One record, which the agent receives in two parts.
                stream.write_all(&[0; 16 * 1024]).await.unwrap();
                sent.send(()).unwrap();
            });
        });
        let runs = runs(async |runs| {
            let socket = Async::new(ours.into()).unwrap();
            let stream = Stream::connect(socket, client.begin().unwrap()).await.unwrap();
            stream.write_all(b"x").await.unwrap();
            all_sent.recv().unwrap();
            runs.set(0);
            assert!(stream.read(&mut [0]).await.unwrap() > 0);
        });
        assert!(runs > 0);
    }
}
