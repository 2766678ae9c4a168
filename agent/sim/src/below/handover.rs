//! The lock is always this agent's, and its program the same.

pub(crate) mod lock {
    use std::path::Path;

    #[derive(Debug, Default)]
    pub(crate) struct Lock;

    pub(crate) enum Kept {
        Same,
        Anew,
        Lost(String),
    }

    impl Lock {
        pub(crate) fn release(&mut self) {}

        pub(crate) fn keep(&mut self, _: &Path) -> Kept {
            Kept::Same
        }
    }
}

pub(crate) mod reexec {
    pub(crate) const REMOVED: &str = " (deleted)";
}
