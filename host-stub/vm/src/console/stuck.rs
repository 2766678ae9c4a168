//! Recognizes boots that have stopped before the agent: an initramfs without its root, a system in
//! emergency mode.

use std::time::Instant;

use mote_client::common::printable;

/// The first line that shows it.
#[derive(Debug)]
pub struct Stuck {
    pub line: String,
    /// The time at which it was read.
    pub since: Instant,
}

/// Returns a line that shows a stopped boot, in the words of initramfs-tools, dracut, systemd or
/// mkinitcpio.
pub(super) fn stops_at(line: &str) -> Option<Stuck> {
    let is_alert = line.contains("ALERT!") && line.contains("does not exist");
    let is_prompt = line.trim_start().starts_with("(initramfs)");
    let says = ["You are in emergency mode", "Entering emergency mode", "into an emergency shell"];
    let is_so = is_alert || is_prompt || says.iter().any(|words| line.contains(words));
    is_so.then(|| Stuck { line: printable::log_line(line.trim()), since: Instant::now() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_each_systems_messages() {
        for line in [
            "ALERT!  /dev/vda1 does not exist.  Dropping to a shell!",
            "(initramfs) ",
            "You are in emergency mode. After logging in, type \"journalctl -xb\" to view",
            "Entering emergency mode. Exit the shell to continue.",
            "You are now being dropped into an emergency shell.",
        ] {
            assert_eq!(stops_at(line).map(|stuck| stuck.line).as_deref(), Some(line.trim()));
        }
        for line in ["", "/dev/vda1 does not exist", "ALERT! hot", "run-init (initramfs)"] {
            assert!(stops_at(line).is_none(), "{line}");
        }
    }
}
