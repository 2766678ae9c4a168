//! Commands on a terminal.

use std::time::Duration;

use super::group;
use crate::world::{Seen, World, has, round, same};

group! { "terminal": shell, window_change, editor, long_output, client_killed }

/// Time for a program to handle its input.
const NOTICE: Duration = Duration::from_millis(1500);

fn shell(world: &World) -> Seen {
    let mut terminal = world.exec_on_terminal(&["sh"])?;
    terminal.until("# ")?;
    terminal.say("stty size; tty; echo T=$TERM\r")?;
    terminal.until("31 97")?;
    terminal.until("/dev/pts/")?;
    terminal.until("T=xterm")?;
    terminal.resize(132, 50)?;
    std::thread::sleep(NOTICE);
    terminal.say("stty size\r")?;
    terminal.until("50 132")?;
    terminal.say("sleep 1000\r")?;
    std::thread::sleep(NOTICE);
    let begun = std::time::Instant::now();
    terminal.say("\x03")?;
    terminal.until("# ")?;
    let took = round(begun.elapsed());
    terminal.say("echo again$((1+1))\r")?;
    terminal.until("again2")?;
    terminal.say("exit 9\r")?;
    same("the exit code", terminal.end()?.0, 9)?;
    Ok(format!("resized; Ctrl-C took {took} s"))
}

fn window_change(world: &World) -> Seen {
    let script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.3; done";
    let mut terminal = world.exec_on_terminal(&["sh", "-c", script])?;
    terminal.until("ready")?;
    terminal.resize(60, 20)?;
    terminal.until("20 60")?;
    terminal.say("\x03")?;
    same("the exit code by Ctrl-C", terminal.end()?.0, 130)?;
    Ok(String::new())
}

fn editor(world: &World) -> Seen {
    world.sh("rm -f /tmp/edited")?;
    let mut terminal = world.exec_on_terminal(&["vi", "/tmp/edited"])?;
    terminal.until("/tmp/edited")?;
    terminal.say("ihello\x1b")?;
    std::thread::sleep(NOTICE);
    terminal.say(":wq\r")?;
    same("the exit code", terminal.end()?.0, 0)?;
    same("the file", world.sh("cat /tmp/edited")?.trim(), "hello")?;
    Ok(String::new())
}

fn long_output(world: &World) -> Seen {
    let begun = std::time::Instant::now();
    let terminal = world.exec_on_terminal(&["sh", "-c", "seq 1 20000; echo the-end"])?;
    let (code, bytes) = terminal.end()?;
    same("the exit code", code, 0)?;
    // A terminal ends lines with two bytes.
    let wanted = (1..=20_000).map(|n: u32| n.to_string().len() + 2).sum::<usize>() + 9;
    same("bytes", bytes, wanted)?;
    Ok(format!("{bytes} bytes in {} s", round(begun.elapsed())))
}

fn client_killed(world: &World) -> Seen {
    let mut terminal = world.exec_on_terminal(&["sh", "-c", "echo ready; exec sleep 4321"])?;
    terminal.until("ready")?;
    has(&world.sh("ps")?, "sleep 4321")?;
    terminal.kill();
    let gone = || Ok(!world.sh("ps")?.contains("sleep 4321"));
    Ok(format!("the command is gone after {} s", world.until("its end", 20, gone)?))
}
