//! The VM's console: what the guest's kernel and its programs print. It goes to a file, and is read from there.

mod colours;
mod stuck;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use self::colours::Colours;
pub(crate) use self::colours::without_colours;
use self::stuck::{Stuck, stops_at};
use crate::common::printable;
use crate::common::whole_file::end_of;

/// What a kernel says when it gives up.
const PANIC: &str = "Kernel panic - not syncing";
/// Of the end of a console that is shown, lines and bytes.
const TAIL: usize = 20;
const TAIL_BYTES: u64 = 16 * 1024;
/// Longest part of a line that is kept until its end comes, bytes.
const LINE: usize = 4096;

/// A console that is followed.
#[derive(Debug)]
pub(crate) struct Console {
    path: PathBuf,
    file: Option<File>,
    line: Vec<u8>,
    panic: Option<String>,
    agent: Option<String>,
    stuck: Option<Stuck>,
    echo: Echo,
    colours: Colours,
}

/// Whether it is shown as it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Echo {
    /// On stderr.
    Stderr,
    No,
}

impl Console {
    /// Of a file that QEMU will write.
    pub(crate) fn new(path: PathBuf, echo: Echo) -> Self {
        Self {
            path,
            file: None,
            line: Vec::new(),
            panic: None,
            agent: None,
            stuck: None,
            echo,
            colours: Colours::default(),
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes what has been printed since; gives the panic's line if there was one.
    pub(crate) fn look(&mut self) -> Option<&str> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let mut piece = [0; 16 * 1024];
        while let Some(count) = self.file.as_mut().and_then(|file| file.read(&mut piece).ok()) {
            let Some(bytes @ [_, ..]) = piece.get(..count) else { break };
            if self.echo == Echo::Stderr {
                eprint!("{}", cleaned(&self.colours.whole(bytes)));
            }
            self.take(bytes);
        }
        self.panic.as_deref()
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
                self.stops(&line);
            } else if self.line.len() < LINE {
                self.line.push(*byte);
            }
        }
    }

    /// Whether the boot has stopped, by a line or by a prompt that ends none.
    fn stops(&mut self, line: &str) {
        if self.stuck.is_none() {
            self.stuck = stops_at(line);
        }
    }

    /// At which line the boot has stopped, if it has.
    pub(crate) fn stuck(&mut self) -> Option<&Stuck> {
        let prompt = without_colours(&String::from_utf8_lossy(&self.line));
        self.stops(&prompt);
        self.stuck.as_ref()
    }

    /// Whether nothing at all was printed.
    pub(crate) fn is_empty(&self) -> bool {
        self.tail().is_empty()
    }

    /// What the agent said last, if its log is shown here.
    pub(crate) fn agent(&self) -> Option<&str> {
        self.agent.as_deref()
    }

    /// Its last lines, for people.
    pub(crate) fn tail(&self) -> String {
        last_lines(&cleaned(&end_of(&self.path, TAIL_BYTES).unwrap_or_default()))
    }
}

/// A guest's text cannot steer a terminal; carriage returns and colours of a console mean nothing here.
fn cleaned(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).replace('\r', "");
    printable::lines(&without_colours(&text))
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let from = lines.len().saturating_sub(TAIL);
    lines.get(from..).unwrap_or_default().iter().map(|line| format!("  {line}\n")).collect()
}

/// What a line says of a panic, without the time before it. Programs print too: the kernel's line has nothing else.
fn panic_in(line: &str) -> Option<String> {
    let line = line.trim();
    let said = match line.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.1.trim_start(),
        None => line,
    };
    let end = said.strip_prefix("---[ end ").map(|end| end.trim_end_matches(" ]---"));
    end.unwrap_or(said).starts_with(PANIC).then(|| printable::text(end.unwrap_or(said)))
}

/// What a line says if it is of the agent's log, wherever it begins: a prompt may be before it.
fn agent_in(line: &str) -> Option<String> {
    let (_, said) = line.trim_end().split_once("mote: ")?;
    let levels = ["info: ", "warn: ", "error: "];
    levels.iter().find_map(|level| said.strip_prefix(level)).map(printable::text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_kernels_own_line_is_a_panic() {
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
    fn the_agents_own_words_are_known_by_their_level() {
        let said = agent_in("/ # mote: info: waiting for vsock: no\x1b driver\r");
        assert_eq!(said.as_deref(), Some("waiting for vsock: no\\x1b driver"));
        for line in ["", "mote: type 'mote-agent status'", "remote: hello", "info: x"] {
            assert_eq!(agent_in(line), None, "{line}");
        }
    }

    #[test]
    fn a_line_in_pieces_is_one_and_the_end_is_what_is_shown() {
        let path = std::env::temp_dir().join(format!("mote-host-console-{}", std::process::id()));
        let mut console = Console::new(path.clone(), Echo::No);
        assert_eq!(console.look(), None);
        let lines: String = (0..30).map(|number| format!("line {number}\r\n")).collect();
        std::fs::write(&path, format!("{lines}[ 1.0] Kernel pa")).unwrap();
        assert_eq!(console.look(), None);
        std::fs::write(&path, format!("{lines}[ 1.0] Kernel panic - not syncing: x\x1b[0m\r\n"))
            .unwrap();
        assert_eq!(console.look(), Some("Kernel panic - not syncing: x"));
        let tail = console.tail();
        assert!(tail.starts_with("  line 11\n") && tail.ends_with("not syncing: x\n"), "{tail}");
        std::fs::remove_file(path).unwrap();
    }
}
