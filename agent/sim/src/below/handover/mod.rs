//! Re-execution, and the root in which a process is.

pub(crate) mod lock_file;
pub(crate) mod processes;

pub(crate) mod reexec {
    use crate::below::here::here;
    use crate::machine::Stage;
    use crate::runtime::log;

    pub(crate) const REMOVED: &str = " (deleted)";

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Mode {
        Same,
        Spared,
        Left,
    }

    /// Re-executes. The running tasks of this process end at their next wait.
    pub(crate) fn start(mode: Mode) {
        let here = here();
        let Some(agent) = here.kernel.current(&here.sim) else { return };
        if agent.has_begun.get() && here.sim.dice.one_in(8) {
            here.sim.trace("cannot re-exec", 0, 0);
            return log::error(format_args!("cannot re-exec"));
        }
        let stage = if mode == Mode::Left { Stage::Left } else { agent.stage };
        let reexec = here.kernel.reexec.borrow().clone();
        reexec.inspect(|reexec| reexec(&agent, stage));
    }

    pub(crate) fn is_spared() -> bool {
        true
    }

    #[derive(Clone, Copy, Debug)]
    pub(crate) struct OldRoot(bool);

    impl OldRoot {
        pub(crate) fn now() -> Self {
            Self(here().kernel.has_left.get())
        }

        pub(crate) fn left(self) -> bool {
            !self.0 && here().kernel.has_left.get()
        }
    }
}
