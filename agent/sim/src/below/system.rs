//! The machine.

#[path = "../../../src/system/missing.rs"]
pub(crate) mod missing;

pub(crate) mod machine {
    use mote_core::hostapi::info::Machine;

    pub(crate) fn described<T>(look: impl FnOnce(&Machine<'_>) -> T) -> T {
        look(&Machine { architecture: "x86_64", hostname: "v", release: "6", pid: 1 })
    }
}
