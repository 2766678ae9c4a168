//! Remembers what an application said about itself, and when the host has to hear it again (P§6,
//! seeds §2). The agent never declares Ready by itself.

/// What an application can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadyState {
    /// It serves.
    Ready,
    /// It takes that back.
    Started,
}

impl ReadyState {
    /// As it goes over the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Started => "Started",
        }
    }

    /// The one with that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Ready, Self::Started].into_iter().find(|state| state.name() == name)
    }
}

/// The last state that the host accepted, if any since boot.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ready(Option<ReadyState>);

impl Ready {
    /// From the file that survives an agent restart but not a reboot; nonsense in it is nothing.
    #[must_use]
    pub fn restore(file: &[u8]) -> Self {
        Self(core::str::from_utf8(file).ok().and_then(|text| ReadyState::parse(text.trim_ascii())))
    }

    /// The host accepted this.
    pub fn set(&mut self, state: ReadyState) {
        self.0 = Some(state);
    }

    /// What was said last.
    #[must_use]
    pub fn get(&self) -> Option<ReadyState> {
        self.0
    }

    /// What to say again to a host that believes `host_state`.
    #[must_use]
    pub fn on_connected(&self, host_state: &str) -> Option<ReadyState> {
        self.0.filter(|state| *state == ReadyState::Ready && host_state == "Started")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lost_ready_is_said_again() {
        let mut ready = Ready::default();
        assert_eq!(ready.on_connected("Started"), None);
        ready.set(ReadyState::Ready);
        assert_eq!(ready.on_connected("Started"), Some(ReadyState::Ready));
        assert_eq!(ready.on_connected("Ready"), None);
        // LXD 5.0 knows no states.
        assert_eq!(ready.on_connected(""), None);
        ready.set(ReadyState::Started);
        assert_eq!(ready.on_connected("Started"), None);
    }

    #[test]
    fn the_file_is_read_back_and_nonsense_is_nothing() {
        assert_eq!(Ready::restore(b"Ready\n").get(), Some(ReadyState::Ready));
        for bad in [&b""[..], b"ready", b"\xff\xfe", b"Ready Ready"] {
            assert_eq!(Ready::restore(bad).get(), None);
        }
    }
}
