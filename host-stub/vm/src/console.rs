//! The VM's console: the output of the guest's kernel and programs, read from the file that QEMU
//! writes.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anstream::adapter::{StripBytes, strip_str};
use rustix::fs::{FallocateFlags, fallocate};

use mote_client::common::whole_file::end_of;
use mote_client::printable;

/// The beginning of the kernel's message.
const PANIC: &str = "Kernel panic - not syncing";
/// Length of the shown end of a console, in lines and bytes.
const TAIL: usize = 20;
const TAIL_BYTES: usize = 16 * 1024;
/// Maximum length of the part of an unfinished line that is kept, in bytes.
const LINE: usize = 4096;
/// Bytes per read: a guest may print endlessly.
const PIECE: usize = 16 * 1024;
const PIECES: usize = 256;
/// Length of the console's end that is kept on disk unless all of it is wanted, in bytes; the file
/// can be twice as long.
const KEPT: u64 = 16 << 20;

/// A console's file and what was found in it.
#[derive(Debug, Default)]
pub struct Console {
    path: PathBuf,
    file: Option<File>,
    line: Vec<u8>,
    panic: Option<String>,
    agent: Option<String>,
    stuck: Option<Stuck>,
    echo: Echo,
    keeps: Keeps,
    /// How many bytes were read, and how many of these were removed from disk.
    read: u64,
    forgotten: u64,
    /// Removes colours from the shown output, whose pieces may end within a sequence.
    colours: StripBytes,
}

/// What part of the output stays on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keeps {
    #[default]
    All,
    /// Keeps only the end, so that a guest that prints endlessly does not fill the disk.
    End,
}

/// Whether the output is shown as it arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Echo {
    Stderr,
    #[default]
    No,
}

impl Console {
    pub fn new(path: PathBuf, echo: Echo, keeps: Keeps) -> Self {
        Self { path, echo, keeps, ..Self::default() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads new output. Returns the line of a panic, if any.
    pub fn look(&mut self) -> Option<&str> {
        if self.file.is_none() {
            self.file = File::options().read(true).write(true).open(&self.path).ok();
        }
        let mut piece = [0; PIECE];
        for _ in 0..PIECES {
            let count = self.file.as_mut().and_then(|file| file.read(&mut piece).ok());
            let Some(bytes @ [_, ..]) = count.and_then(|count| piece.get(..count)) else { break };
            if self.echo == Echo::Stderr {
                let shown = cleaned(&self.plain(bytes));
                printable::to_stderr(format_args!("{shown}"));
            }
            self.take(bytes);
            self.read += u64::try_from(bytes.len()).unwrap_or_default();
        }
        self.forget();
        self.panic.as_deref()
    }

    /// Returns new output without colours. A line end ends a sequence that is never completed.
    fn plain(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.colours.strip_next(line).for_each(|text| plain.extend_from_slice(text));
            if line.ends_with(b"\n") {
                self.colours = StripBytes::new();
            }
        }
        plain
    }

    /// Frees the disk space of output that was read and will not be shown.
    fn forget(&mut self) {
        let until = self.read.saturating_sub(KEPT);
        if self.keeps == Keeps::All || until < self.forgotten + KEPT {
            return;
        }
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // A file system without holes keeps everything.
        let _as_it_is = self.file.as_ref().map(|file| fallocate(file, hole, 0, until));
        self.forgotten = until;
    }

    fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if *byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                let line = without_colours(&String::from_utf8_lossy(&line));
                if self.panic.is_none() {
                    self.panic = panic_in(&line);
                }
                self.agent = agent_in(&line).or(self.agent.take());
                self.stuck = self.stuck.take().or_else(|| stops_at(&line));
            } else if self.line.len() < LINE {
                self.line.push(*byte);
            }
        }
    }

    /// Returns where the boot has stopped: a line, or a prompt without a line end.
    pub fn stuck(&mut self) -> Option<&Stuck> {
        let prompt = without_colours(&String::from_utf8_lossy(&self.line));
        self.stuck = self.stuck.take().or_else(|| stops_at(&prompt));
        self.stuck.as_ref()
    }

    pub fn agent(&self) -> Option<&str> {
        self.agent.as_deref()
    }

    /// Returns the last lines for people. Reads the file that was opened, because a guest with a
    /// share may have replaced it.
    pub fn tail(&self) -> String {
        let end = self.file.as_ref().and_then(|file| end_of(file, TAIL_BYTES).ok());
        last_lines(&cleaned(&end.unwrap_or_default()))
    }
}

/// Returns text without colours, titles and cursor moves. No such sequence spans lines.
fn without_colours(text: &str) -> String {
    text.split_inclusive('\n').map(|line| strip_str(line).to_string()).collect()
}

/// Removes characters that would control a terminal, carriage returns and colours.
fn cleaned(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).replace('\r', "");
    printable::lines(&without_colours(&text))
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let from = lines.len().saturating_sub(TAIL);
    lines.get(from..).unwrap_or_default().iter().map(|line| format!("  {line}\n")).collect()
}

/// Returns a line's panic message without its time. Other programs' lines have text before it.
fn panic_in(line: &str) -> Option<String> {
    let line = line.trim();
    let said = match line.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.1.trim_start(),
        None => line,
    };
    let end = said.strip_prefix("---[ end ").map(|end| end.trim_end_matches(" ]---"));
    end.unwrap_or(said).starts_with(PANIC).then(|| printable::text(end.unwrap_or(said)))
}

/// Returns a line's part that belongs to the agent's log; a prompt may come before it.
fn agent_in(line: &str) -> Option<String> {
    let (_, said) = line.trim_end().split_once("mote: ")?;
    let levels = ["info: ", "warn: ", "error: "];
    levels.iter().find_map(|level| said.strip_prefix(level)).map(printable::text)
}

/// The first line that shows that the boot has stopped.
#[derive(Debug)]
pub struct Stuck {
    pub line: String,
    /// The time at which that line was read.
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
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn removes_only_colours_titles_and_cursor_moves() {
        for (text, shown) in [
            ("\x1b[0;1;31mFailed\x1b[0m to start", "Failed to start"),
            ("\x1b]0;title\x07a\x1b]0;b\x1b\\c\x1b(Bd\x1b7e", "acde"),
            ("[ 1.0] é [0m", "[ 1.0] é [0m"),
            ("\x1b[2J\x1b[1;1Hé", "é"),
            ("a\x1b", "a"),
            ("a\x1b[31", "a"),
            ("\x1b]0;never ended\nb", "b"),
        ] {
            assert_eq!(without_colours(text), shown, "{text:?}");
            let mut console = Console::new(PathBuf::new(), Echo::No, Keeps::End);
            let pieces = text.as_bytes().chunks(1);
            let plain = pieces.flat_map(|piece| console.plain(piece)).collect::<Vec<_>>();
            assert_eq!(String::from_utf8(plain).unwrap(), shown, "{text:?} in pieces");
        }
    }

    #[test]
    fn detects_only_the_kernels_own_panic_line() {
        let said = "Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100";
        for line in [format!("[    1.234567] {said}\r"), said.to_owned()] {
            assert_eq!(panic_in(&line).as_deref(), Some(said), "{line}");
        }
        for line in
            ["", "[", "[ 1.0] all well", "grep: Kernel panic - not syncing", "[x Kernel panic"]
        {
            assert_eq!(panic_in(line), None, "{line}");
        }
    }

    #[test]
    fn recognises_the_agents_lines_by_their_level() {
        let said = agent_in("/ # mote: info: waiting for vsock: no\x1b driver\r");
        assert_eq!(said.as_deref(), Some("waiting for vsock: no\\x1b driver"));
        for line in ["", "mote: type 'mote-agent status'", "remote: hello", "info: x"] {
            assert_eq!(agent_in(line), None, "{line}");
        }
    }

    #[test]
    fn joins_partial_lines_and_shows_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("console");
        let mut console = Console::new(path.clone(), Echo::No, Keeps::End);
        assert_eq!(console.look(), None);
        let lines: String = (0..30).map(|number| format!("line {number}\r\n")).collect();
        std::fs::write(&path, format!("{lines}[ 1.0] Kernel pa")).unwrap();
        assert_eq!(console.look(), None);
        std::fs::write(&path, format!("{lines}[ 1.0] Kernel panic - not syncing: x\x1b[0m\r\n"))
            .unwrap();
        assert_eq!(console.look(), Some("Kernel panic - not syncing: x"));
        let tail = console.tail();
        assert!(tail.starts_with("  line 11\n") && tail.ends_with("not syncing: x\n"), "{tail}");
    }

    #[test]
    fn keeps_the_end_of_endless_output() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("endless");
        let line = [b"x".repeat(1022), b"\r\n".to_vec()].concat().repeat(1024);
        for (keeps, most) in [(Keeps::End, 2 * KEPT), (Keeps::All, u64::MAX)] {
            let mut guest = File::create(&path).unwrap();
            let mut console = Console::new(path.clone(), Echo::No, keeps);
            for _ in 0..64 {
                guest.write_all(&line).unwrap();
                console.look();
            }
            let blocks = guest.metadata().unwrap().blocks() * 512;
            assert!(blocks <= most && (blocks < 64 << 20) == (keeps == Keeps::End), "{blocks}");
            guest.write_all(b"Kernel panic - not syncing: x\r\n").unwrap();
            assert!(console.look().is_some() && console.tail().ends_with("x\n"));
        }
    }

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
