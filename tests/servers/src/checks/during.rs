//! Commands that run while their agent or their instance ends.

use std::time::Duration;

use crate::run::Background;
use crate::terminal::Terminal;
use crate::world::{VM, World, same};

/// What a client gives back when its command's agent or instance is gone, if the server sees to it as with
/// containers: 128 and SIGHUP (docs/protocol/exec.md, "When the agent ends").
pub(super) const GONE: i32 = 129;
/// From the command's first word on, for the server to wait for its end.
const SETTLED: Duration = Duration::from_secs(2);

/// A command with pipes and one on a terminal, both without an end.
pub(super) struct During {
    pipes: Background,
    terminal: Terminal,
}

impl During {
    pub(super) fn begin(world: &World) -> Result<Self, String> {
        let script = "echo begun; exec sleep 4321";
        // The client's own words are to be seen with its code.
        let first = ["sh", "-c", "exec \"$@\" 2>&1", "sh", world.server.cli(), "exec", VM, "-T"];
        let words = [&first[..], &["--", "sh", "-c", script]].concat();
        let mut pipes = world.run(&words).start()?;
        same("the first line", pipes.line()?, "begun".to_owned())?;
        let mut terminal = world.exec_on_terminal(&["sh", "-c", script])?;
        terminal.until("begun")?;
        std::thread::sleep(SETTLED);
        Ok(Self { pipes, terminal })
    }

    /// The clients' exit codes, with pipes and on a terminal, and what the first of them said.
    pub(super) fn end(self, world: &World) -> Result<([i32; 2], String), String> {
        let ended = self.pipes.end(world.limit(30))?;
        let (terminal, _) = self.terminal.end()?;
        let said = ended.said();
        Ok(([ended.code, terminal], format!("{} and {terminal}; {said}", ended.code)))
    }
}
