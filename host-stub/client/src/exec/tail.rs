//! The last output of a command, for reports.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes kept of each stream.
pub const TAIL: usize = 32 * 1024;

/// The ends of stdout and stderr, if they are kept.
#[derive(Clone, Debug, Default)]
pub struct Tails(Option<Arc<[Mutex<VecDeque<u8>>; 2]>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Out,
    Err,
}

impl Tails {
    pub fn kept() -> Self {
        Self(Some(Arc::default()))
    }

    pub(super) fn take(&self, stream: Stream, piece: &[u8]) {
        let Some(both) = &self.0 else { return };
        let [out, err] = both.as_ref();
        let kept = if stream == Stream::Out { out } else { err };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(piece.get(piece.len().saturating_sub(TAIL)..).unwrap_or_default());
        let over = kept.len().saturating_sub(TAIL);
        kept.drain(..over);
    }

    pub fn both(&self) -> [Vec<u8>; 2] {
        let Some(both) = &self.0 else { return [Vec::new(), Vec::new()] };
        both.each_ref().map(|kept| {
            let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.iter().copied().collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_only_the_end() {
        let tails = Tails::kept();
        tails.take(Stream::Out, b"first");
        tails.take(Stream::Err, b"other");
        tails.take(Stream::Out, &vec![b'x'; 3 * TAIL]);
        tails.take(Stream::Out, b"last");
        let [out, err] = tails.both();
        assert_eq!((out.len(), out.ends_with(b"xlast"), err), (TAIL, true, b"other".to_vec()));
        let none = Tails::default();
        none.take(Stream::Out, b"x");
        assert_eq!(none.both(), [b"", b""]);
    }
}
