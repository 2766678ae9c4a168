//! Commands in the instance.

use crate::prelude::*;

group! {
    "exec":
    uname, exit_codes, not_found, streams_apart, env_cwd_user, default_environment, big_output,
    both_ways, no_input, ten_at_once, in_turn, signals, background_child,
    recorded_output;
    "terminal": shell, editor, long_output, client_killed
}

fn uname(world: &World) -> Seen {
    let text = world.exec(&["uname", "-a"]).text()?;
    has(&text, &format!("Linux {VM} "))?;
    Ok(text.trim().to_owned())
}

fn exit_codes(world: &World) -> Seen {
    for code in [0, 1, 7, 255] {
        world.exec(&["sh", "-c", &format!("exit {code}")]).code(code)?;
    }
    for (signal, code) in [("KILL", 137), ("TERM", 143)] {
        world.exec(&["sh", "-c", &format!("kill -{signal} $$")]).code(code)?;
    }
    Ok("0, 1, 7, 255; 137 by SIGKILL, 143 by SIGTERM".into())
}

fn not_found(world: &World) -> Seen {
    world.exec(&["/etc/passwd"]).code(126)?;
    Ok(world.exec(&["nosuchcommand"]).code(127)?.said())
}

fn streams_apart(world: &World) -> Seen {
    let output = world.exec(&["sh", "-c", "echo out; echo err >&2"]).code(0)?;
    same("standard output", output.text(), "out\n")?;
    same("standard error", output.err, "err\n")?;
    Ok(String::new())
}

fn env_cwd_user(world: &World) -> Seen {
    let script = r#"echo "$A|$(pwd)|$(id -u):$(id -g)|$HOME|$USER""#;
    let with = ["--env", "A=b c", "--cwd", "/home/user", "--user", "1000", "--group", "1000"];
    let words = [&["exec", VM, "-T"], &with[..], &["--", "sh", "-c", script]].concat();
    let text = world.ok(&words)?;
    has(&text, "b c|/home/user|1000:1000|")?;
    Ok(text.trim().to_owned())
}

fn default_environment(world: &World) -> Seen {
    let text = world.sh(r#"echo "$PATH|$HOME|$USER|$LANG|$(pwd)""#)?;
    has(&text, "/usr/local/sbin:/usr/local/bin:")?;
    has(&text, "|/root|root|C.UTF-8|/root")?;
    Ok(text.trim().to_owned())
}

fn rate(begun: Instant) -> String {
    let rate = f64::from(u32::try_from(BIG).unwrap_or(u32::MAX)) / begun.elapsed().as_secs_f64();
    format!("{BIG} MiB, {rate:.2} MiB/s")
}

fn big_output(world: &World) -> Seen {
    let script = format!(
        "dd if=/dev/urandom bs=1M count={} of=/tmp/big 2>/dev/null; sha256sum </tmp/big",
        BIG
    );
    let limit = world.limit(300);
    let wanted = first_word(&world.exec(&["sh", "-c", &script]).within(limit).code(0)?)?;
    let begun = Instant::now();
    let data = world.cli(&["exec", VM, "--", "cat", "/tmp/big"]).within(limit).code(0)?.out;
    let took = rate(begun);
    same("the checksum", checksum(&data)?, wanted)?;
    world.sh("rm /tmp/big")?;
    Ok(took)
}

fn both_ways(world: &World) -> Seen {
    let data = noise(BIG << 20);
    let words = ["exec", VM, "--", "cat"];
    let begun = Instant::now();
    let output = world.cli(&words).input(data.clone()).within(world.limit(300)).code(0)?;
    same("what came back is what was sent", output.out == data, true)?;
    Ok(rate(begun))
}

fn no_input(world: &World) -> Seen {
    let words = ["exec", VM, "-T", "-n", "--", "sh", "-c", "cat; echo end"];
    let output = world.cli(&words).input(*b"unwanted").code(0)?;
    same("standard output", output.text(), "end\n")?;
    Ok(String::new())
}

fn ten_at_once(world: &World) -> Seen {
    let begun = Instant::now();
    let start = |number: i32| -> Try<(i32, Background)> {
        let script = format!("sleep 1; echo {number}; exit {number}");
        Ok((number, world.exec(&["sh", "-c", &script]).start()?))
    };
    let all: Vec<_> = (0..10).map(start).collect::<Result<_, _>>()?;
    for (number, one) in all {
        let output = one.end(world.limit(60))?;
        same("output", output.text(), format!("{number}\n"))?;
        same("exit code", output.code, number)?;
    }
    Ok(format!("{} s", round(begun.elapsed())))
}

const TURNS: usize = 40;

fn in_turn(world: &World) -> Seen {
    let before = agents_memory(world)?;
    let begun = Instant::now();
    for turn in 0..TURNS {
        same("output", world.exec(&["echo", &turn.to_string()]).text()?, format!("{turn}\n"))?;
    }
    let took = round(begun.elapsed());
    let after = agents_memory(world)?;
    Ok(format!("{} in {took} s; the agent's memory {before} kB before, {after} kB after", TURNS))
}

fn agents_memory(world: &World) -> Try<u64> {
    let text = world
        .sh("sed -n 's/VmRSS:[^0-9]*\\([0-9]*\\).*/\\1/p' /proc/$(cat /run/agent.pid)/status")?;
    text.trim().parse().map_err(|_| format!("no memory: {text:?}"))
}

/// The signal sent to the client, and the one that reaches the command: a client without a terminal
/// converts HUP to TERM.
const SIGNALS: [(&str, &str); 4] =
    [("INT", "INT"), ("TERM", "TERM"), ("USR1", "USR1"), ("HUP", "TERM")];

fn signals(world: &World) -> Seen {
    for (sent, name) in SIGNALS {
        let script = format!(
            "trap 'echo got {name}; exit 42' {name}; echo ready; while :; do sleep 0.2; done"
        );
        let mut command = world.exec(&["sh", "-c", &script]).start()?;
        same("the first line", command.line()?, "ready")?;
        command.signal(&format!("-{sent}"))?;
        let output = command.end(world.limit(30)).map_err(|why| format!("{sent}: {why}"))?;
        same(sent, (output.text(), output.code), (format!("got {name}\n"), 42))?;
    }
    Ok("INT, TERM and USR1 reach the command, HUP as TERM".into())
}

fn background_child(world: &World) -> Seen {
    let begun = Instant::now();
    world.sh("sleep 300 >/dev/null 2>&1 </dev/null & echo $!")?;
    same("it keeps nobody waiting", begun.elapsed() < world.limit(10), true)?;
    Ok(format!("{} s", round(begun.elapsed())))
}

fn recorded_output(world: &World) -> Seen {
    let request = r#"{"command":["echo","hi"],"record-output":true,"wait-for-websocket":false}"#;
    let path = format!("/1.0/instances/{VM}/exec");
    let text = world.ok(&["query", "-X", "POST", "--wait", "-d", request, &path])?;
    let operation: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    same("the exit code", &operation["metadata"]["return"], 0)?;
    let log = operation["metadata"]["output"]["1"].as_str().unwrap_or_default().to_owned();
    same("what was recorded", world.ok(&["query", "--raw", &log])?.trim(), "hi")?;
    Ok(log)
}

const NOTICE: Duration = Duration::from_millis(1500);

fn shell(world: &World) -> Seen {
    let mut terminal = world.terminal(&["shell", VM])?;
    terminal.until("# ")?;
    terminal.say("stty size; tty; echo T=$TERM\r")?;
    terminal.until("31 97")?;
    terminal.until("/dev/pts/")?;
    terminal.until("T=xterm")?;
    terminal.resize(132, 50)?;
    thread::sleep(NOTICE);
    terminal.say("stty size\r")?;
    terminal.until("50 132")?;
    terminal.say("sleep 1000\r")?;
    thread::sleep(NOTICE);
    let begun = Instant::now();
    terminal.say("\x03")?;
    terminal.until("# ")?;
    let took = round(begun.elapsed());
    terminal.say("echo again$((1+1))\r")?;
    terminal.until("again2")?;
    terminal.say("exit 9\r")?;
    same("the exit code", terminal.end()?.0, 9)?;
    Ok(format!("resized; Ctrl-C took {took} s"))
}

fn editor(world: &World) -> Seen {
    world.sh("rm -f /tmp/edited")?;
    let mut terminal = world.exec_on_terminal(&["vi", "/tmp/edited"])?;
    terminal.until("/tmp/edited")?;
    terminal.say("ihello\x1b")?;
    thread::sleep(NOTICE);
    terminal.say(":wq\r")?;
    same("the exit code", terminal.end()?.0, 0)?;
    same("the file", world.sh("cat /tmp/edited")?.trim(), "hello")?;
    Ok(String::new())
}

fn long_output(world: &World) -> Seen {
    let begun = Instant::now();
    let terminal = world.exec_on_terminal(&["sh", "-c", "seq 1 20000; echo the-end"])?;
    let (code, bytes) = terminal.end()?;
    same("the exit code", code, 0)?;
    // A terminal ends lines with two bytes.
    same("bytes", bytes, (1..=20_000).map(|n: u32| n.to_string().len() + 2).sum::<usize>() + 9)?;
    Ok(format!("{bytes} bytes in {} s", round(begun.elapsed())))
}

fn client_killed(world: &World) -> Seen {
    let mut terminal = world.exec_on_terminal(&["sh", "-c", "echo ready; exec sleep 4321"])?;
    terminal.until("ready")?;
    has(&world.sh("ps")?, "sleep 4321")?;
    drop(terminal);
    let gone = || Ok(!world.sh("ps")?.contains("sleep 4321"));
    Ok(format!("the command is gone after {} s", world.until("its end", 20, gone)?))
}
