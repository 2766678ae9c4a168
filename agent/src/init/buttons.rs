//! Power buttons: input devices with that key, including hot-plugged ones.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use mote_core::init::button;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::runtime::read_text;
use crate::sys::file;
use crate::system::devices::entries;

const EVENTS: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Buttons(Vec<(PathBuf, OwnedFd)>);

impl Buttons {
    pub(crate) fn look(&mut self, root: &Path) {
        for path in entries(&root.join("dev/input")) {
            let Some(name) = path.file_name() else { continue };
            let about = root.join("sys/class/input").join(name).join("device/capabilities/key");
            let has_key = read_text(&about).is_ok_and(|keys| button::has_it(&keys));
            if !has_key || self.0.iter().any(|(known, _)| *known == path) {
                continue;
            }
            if let Ok(file) = file::open(&path, OFlags::NONBLOCK) {
                self.0.push((path, file.into()));
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(|(_, file)| file.as_fd())
    }

    /// Returns whether a button was pressed. Closes devices that are gone.
    pub(crate) fn is_pressed(&mut self) -> bool {
        let mut pressed = false;
        self.0.retain(|(_, file)| {
            let mut events = [0; EVENTS * button::EVENT];
            loop {
                match rustix::io::read(file, &mut events) {
                    Ok(0) => return false,
                    Ok(count) => {
                        pressed |= button::is_pressed(events.get(..count).unwrap_or_default())
                    }
                    Err(error) => return error == Errno::AGAIN,
                }
            }
        });
        pressed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::scratch;
    use mote_core::init::button::EVENT;

    #[test]
    fn finds_a_button_once_and_drops_it_when_removed() {
        let root = scratch("buttons");
        let put = |path: &str, bytes: &[u8]| crate::runtime::put(&root, path, bytes);
        let mut buttons = Buttons::default();
        buttons.look(&root);
        assert!(buttons.is_empty());
        let mut press = [0; EVENT];
        press[16..24].copy_from_slice(&[1, 0, 116, 0, 1, 0, 0, 0]);
        for (name, keys) in [("event0", "10000000000000 0\n"), ("event1", "70000 0 0 0 0\n")] {
            put(&format!("dev/input/{name}"), &press);
            put(&format!("sys/class/input/{name}/device/capabilities/key"), keys.as_bytes());
        }
        for _ in 0..2 {
            buttons.look(&root);
            assert_eq!(buttons.files().count(), 1);
        }
        // End of file means that the device was removed.
        assert!(buttons.is_pressed() && buttons.is_empty());
    }
}
