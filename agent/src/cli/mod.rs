//! The commands: `--check`, `connect`, and the built-in client of the running agent.

pub(crate) mod check;
pub(crate) mod client;
pub(crate) mod connect;

/// The text of `--help`; the manual page has the details.
pub(crate) const HELP: &str = include_str!("help.txt");

#[cfg(test)]
#[test]
fn help_shows_the_cores_intervals() {
    let core = mote_core::status::Intervals::default();
    let [connect, started, connected] =
        [core.connect, core.started, core.connected].map(|interval| interval.as_millis());
    assert!(HELP.contains(&format!("({connect}, {started}, {connected})")));
}
