//! No reports without workers.

pub(crate) mod metrics {
    use std::path::Path;

    use mote_core::flavour::Flavour;

    pub(crate) fn without_worker(_: Flavour, _: &Path) -> Option<Vec<u8>> {
        None
    }
}
