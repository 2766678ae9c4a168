//! Signals to the agent and the ends of its children.

/// A signal to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signalled {
    /// SIGCHLD.
    Child,
    /// SIGHUP: re-exec the program that its file now contains.
    Anew,
    /// SIGUSR1: a second agent takes over from that of an initramfs.
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
