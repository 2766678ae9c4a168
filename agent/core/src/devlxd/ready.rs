//! Remembers the state that an application reported, and when to repeat it to the host (P§6,
//! decisions §2). `ready_when` reports Ready without an application.

use crate::json::Writer;

/// Writes the body of a `PATCH /1.0` that sets this state.
pub fn write_state(json: &mut Writer<'_>, state: &str) {
    json.begin_object();
    json.pair("state", state);
    json.end_object();
}

/// Returns the host's record of the state from its answer to `GET /1.0`, if it has one.
#[cfg(feature = "alloc")]
#[must_use]
pub fn host_state(answer: &[u8]) -> Option<alloc::string::String> {
    crate::json::Envelope::parse(answer).ok()?.metadata.member("state")?.string().ok()
}

/// A state that an application can report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadyState {
    /// The application is ready to serve.
    Ready,
    /// The application is no longer ready.
    Started,
}

impl ReadyState {
    /// Returns the state's name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Started => "Started",
        }
    }

    /// Returns the state with this name on the wire.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Ready, Self::Started].into_iter().find(|state| state.name() == name)
    }
}

/// The last state since boot, if any, that the host accepted, or that was sent to it if it is
/// `Started`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ready(Option<ReadyState>);

impl Ready {
    /// Reads the file, which survives a restart of the agent but not a reboot. Ignores unknown
    /// content.
    #[must_use]
    pub fn restore(file: &[u8]) -> Self {
        Self(core::str::from_utf8(file).ok().and_then(|text| ReadyState::parse(text.trim_ascii())))
    }

    /// Records a state.
    pub fn set(&mut self, state: ReadyState) {
        self.0 = Some(state);
    }

    /// Returns the last state.
    #[must_use]
    pub fn get(&self) -> Option<ReadyState> {
        self.0
    }

    /// Returns the state to repeat to a host whose record is `host_state`: a Ready that it has
    /// lost.
    #[must_use]
    pub fn on_connected(&self, host_state: &str) -> Option<ReadyState> {
        self.0.filter(|state| *state == ReadyState::Ready && host_state == "Started")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_only_a_lost_ready() {
        let mut ready = Ready::default();
        assert_eq!(ready.on_connected("Started"), None);
        ready.set(ReadyState::Ready);
        assert_eq!(ready.on_connected("Started"), Some(ReadyState::Ready));
        assert_eq!(ready.on_connected("Ready"), None);
        // LXD 5.0 has no states.
        assert_eq!(ready.on_connected(""), None);
        ready.set(ReadyState::Started);
        assert_eq!(ready.on_connected("Started"), None);
    }

    #[test]
    fn restores_the_file_and_ignores_invalid_ones() {
        assert_eq!(Ready::restore(b"Ready\n").get(), Some(ReadyState::Ready));
        for bad in [&b""[..], b"ready", b"\xff\xfe", b"Ready Ready"] {
            assert_eq!(Ready::restore(bad).get(), None);
        }
    }
}
