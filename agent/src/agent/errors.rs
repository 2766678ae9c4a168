//! Current errors by subject, for the status file.

/// Error text for the host's 401.
pub(crate) const REFUSED: &str = "the host refused this agent's certificate (401)";

/// Subject of an error; an error is cleared by its subject. Subjects that prevent the host from
/// using this agent come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// The status port; cleared when the port is open.
    Port,
    /// Failing calls of the host; cleared by a successful one.
    Caller,
    /// Calls to the host; cleared when CONNECTED.
    Host,
    /// Anything else; never cleared.
    Else,
}

#[derive(Debug, Default)]
pub(crate) struct Errors([Option<String>; 4]);

impl Errors {
    pub(crate) fn about(&mut self, about: About) -> &mut Option<String> {
        let [port, caller, host, other] = &mut self.0;
        match about {
            About::Port => port,
            About::Caller => caller,
            About::Host => host,
            About::Else => other,
        }
    }

    pub(crate) fn first(&self) -> Option<&str> {
        self.0.iter().flatten().next().map(String::as_str)
    }

    pub(crate) fn is_of_host(&self) -> bool {
        let [errors @ .., _] = &self.0;
        errors.iter().any(Option::is_some)
    }

    /// Returns whether the host and the agent refuse one another, or the host cannot call.
    pub(crate) fn is_blocked(&self) -> bool {
        let [_, caller, host, _] = &self.0;
        caller.is_some() || host.as_ref().is_some_and(|why| why.starts_with(REFUSED))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Called {
    /// No agent has run in this boot.
    Never,
    /// An earlier agent.
    Before,
    Yes,
}
