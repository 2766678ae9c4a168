//! The machine and its devices.

pub(crate) use crate::below::{absent as devices, absent as modules};
pub(crate) mod uevent;

use mote_core::hostapi::info::Machine;

pub(crate) fn described<T>(look: impl FnOnce(&Machine<'_>) -> T) -> T {
    look(&Machine { architecture: "x86_64", hostname: "v", release: "6", pid: 1 })
}

/// There is no simulated init system.
pub(crate) mod power {
    use std::path::Path;

    use mote_core::hostapi::exec::power::Power;

    pub(crate) enum Way {}

    pub(crate) fn find(_: &Path, _: &Power) -> Result<Way, String> {
        Err("process 1 is not simulated".into())
    }

    impl Way {
        pub(crate) fn ask(self, _: &Power) {
            match self {}
        }
    }
}
