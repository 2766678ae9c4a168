//! The machine and its devices.

pub(crate) mod devices;
#[path = "../../../../src/system/missing.rs"]
pub(crate) mod missing;
pub(crate) mod uevent;

pub(crate) mod machine {
    use mote_core::hostapi::info::Machine;

    pub(crate) fn described<T>(look: impl FnOnce(&Machine<'_>) -> T) -> T {
        look(&Machine { architecture: "x86_64", hostname: "v", release: "6", pid: 1 })
    }
}

pub(crate) mod modules {
    use std::path::Path;

    use crate::system::missing::Missing;

    #[derive(Clone, Copy)]
    pub(crate) enum NodeWait {
        None,
        Timeout,
    }

    pub(crate) fn load_vsock(_: &Path, _: NodeWait) -> Result<Option<String>, Missing> {
        Ok(None)
    }
}
