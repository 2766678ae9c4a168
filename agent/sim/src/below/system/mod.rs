//! The machine and its devices.

pub(crate) use crate::below::absent as devices;
pub(crate) mod uevent;

pub(crate) mod machine {
    use mote_core::hostapi::info::Machine;

    pub(crate) fn described<T>(look: impl FnOnce(&Machine<'_>) -> T) -> T {
        look(&Machine { architecture: "x86_64", hostname: "v", release: "6", pid: 1 })
    }
}

/// No simulated init system.
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

pub(crate) mod modules {
    use std::path::Path;

    #[derive(Clone, Copy)]
    pub(crate) enum NodeWait {
        None,
        Timeout,
    }

    pub(crate) fn load_vsock(_: &Path, _: NodeWait) -> Result<Option<String>, String> {
        Ok(None)
    }
}
