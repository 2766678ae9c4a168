//! Commands that run while their agent or their instance ends.

use std::time::Duration;

use crate::run::Background;
use crate::terminal::Terminal;
use crate::world::{Seen, VM, World, same};

/// A client's exit code when its command's agent or instance is gone, if the server treats it as a
/// container: 128 plus SIGHUP (docs/protocol/exec.md, "When the agent ends").
pub(super) const GONE: i32 = 129;
/// Time after the command's first output until the server waits for its end.
const SETTLED: Duration = Duration::from_secs(2);

/// A command with pipes and one on a terminal, both endless.
pub(super) struct During {
    pipes: Background,
    terminal: Terminal,
}

impl During {
    pub(super) fn begin(world: &World) -> Result<Self, String> {
        let script = "echo begun; exec sleep 4321";
        // The client's messages are reported with its code.
        let first = ["sh", "-c", "exec \"$@\" 2>&1", "sh", world.server.cli(), "exec", VM, "-T"];
        let words = [&first[..], &["--", "sh", "-c", script]].concat();
        let mut pipes = world.run(&words).start()?;
        same("the first line", pipes.line()?, "begun".to_owned())?;
        let mut terminal = world.exec_on_terminal(&["sh", "-c", script])?;
        terminal.until("begun")?;
        std::thread::sleep(SETTLED);
        Ok(Self { pipes, terminal })
    }

    /// Demands this exit code of both clients; returns the codes and what the first client printed.
    pub(super) fn end(self, world: &World, wanted: i32) -> Seen {
        let ended = self.pipes.end(world.limit(30))?;
        let (terminal, _) = self.terminal.end()?;
        let said = format!("{} and {terminal}; {}", ended.code, ended.said());
        if [ended.code, terminal] == [wanted; 2] { Ok(said) } else { Err(said) }
    }
}
