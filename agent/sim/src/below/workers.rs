//! Reports, made by a process that takes its time.

pub(crate) mod run {
    use std::io;

    use crate::agent::Agent;
    use crate::below::here::here;
    use crate::machine::executor::{MILLI, Zone};
    use crate::machine::wait::sleep;

    pub(crate) async fn report(_: &Agent, _: &str, _: usize) -> io::Result<Vec<u8>> {
        let here = here();
        sleep(&here.sim, Zone::Guest, here.sim.dice.between(MILLI, 200 * MILLI)).await;
        if here.sim.dice.one_in(16) {
            Err(io::Error::other("it was killed"))
        } else {
            Ok(b"{}".to_vec())
        }
    }
}

pub(crate) mod report {
    pub(crate) mod metrics {
        use std::path::Path;

        use mote_core::flavour::Flavour;

        pub(crate) fn without_worker(_: Flavour, _: &Path) -> Option<Vec<u8>> {
            None
        }
    }
}
