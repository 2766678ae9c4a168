//! The lock is always this agent's, and its program the same.

pub(crate) mod lock {
    use std::fmt;
    use std::path::Path;

    #[derive(Debug, Default)]
    pub(crate) struct Lock;

    pub(crate) enum LockError {
        Another(String),
    }

    impl fmt::Display for LockError {
        fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            let Self::Another(who) = self;
            out.write_str(who)
        }
    }

    pub(crate) enum Kept {
        Same,
        Anew,
        Lost(LockError),
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
