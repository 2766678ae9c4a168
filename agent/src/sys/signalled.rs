//! Signals to the agent, and how its children end.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signalled {
    /// SIGCHLD.
    Child,
    /// SIGHUP: re-exec, so that an upgraded program file takes effect.
    Reexec,
    /// SIGUSR1: another agent takes over from this one of an initramfs.
    Replaced,
    /// SIGTERM or SIGINT.
    End,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Exit code.
    Code(i32),
    /// Number of the signal that killed the child.
    Signal(i32),
}
