//! The others' turn: who moves bytes between two sides that are both as fast as we are never has to
//! wait, and would keep the one thread to itself.

use futures_lite::future::yield_now;

/// Bytes that may be moved in one turn: some milliseconds, so that a turn's end costs nothing beside.
const TURN: usize = 256 * 1024;

/// How much of a turn is used up.
#[derive(Debug, Default)]
pub(crate) struct Fair(usize);

impl Fair {
    /// So many bytes were moved: lets others run if that was enough for once.
    pub(crate) async fn moved(&mut self, bytes: usize) {
        self.0 = self.0.saturating_add(bytes);
        if self.0 >= TURN {
            self.0 = 0;
            yield_now().await;
        }
    }
}
