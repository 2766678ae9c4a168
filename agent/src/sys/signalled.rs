//! What the kernel tells an agent of itself and of its children.

/// A signal to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signalled {
    /// SIGCHLD.
    Child,
    /// SIGHUP: to start anew, as the program that its file is now.
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
    /// Number of the signal that killed it.
    Signal(i32),
}
