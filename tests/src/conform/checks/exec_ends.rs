//! Exec: streams, exit codes, signals, and all the ways a command can end (P§4.1).

use tungstenite::protocol::frame::coding::Data;

use crate::conform::prelude::*;

const GROUP: Group = Group::new("Exec: streams", "P§4.1");
const ENDS: Group = Group::new("Exec: ends", "P§4.1");

pub(super) const ALL: &[Check] = &[
    GROUP.is("input comes back from `cat`, in any of the 256 bytes", |agent| {
        let input: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        let mut running = Running::start(agent, &plain(&["cat"]))?;
        running.stdin.binary(&input)?;
        running.stdin.barrier()?;
        let back = running.output()?;
        hold("other bytes come back", back == input)
    }),
    GROUP.is("complaints come on a socket of their own", |agent| {
        let done = run(agent, &script("echo one; echo two >&2"), b"")?;
        same("the output", done.out, "one\n")?;
        same("the complaints", done.err, "two\n")
    }),
    GROUP.is("output is binary messages, its end an empty text message", |agent| {
        let mut running = Running::start(agent, &script("echo one; sleep 0.2; echo two"))?;
        let out = running.out.as_mut().ok_or("no output")?;
        let (mut text, mut last) = (Vec::new(), out.message()?);
        while let Message::Binary(bytes) = last {
            text.extend(bytes);
            last = out.message()?;
        }
        same("the output", String::from_utf8_lossy(&text), "one\ntwo\n")?;
        hold("the end is not an empty text", last == Message::text(""))
    }),
    GROUP.is("a close frame ends the input", |agent| {
        let mut running = Running::start(agent, &plain(&["wc", "-c"]))?;
        running.stdin.binary(b"12345")?;
        running.stdin.close()?;
        let out = running.output()?;
        same("the output", String::from_utf8_lossy(&out).trim().to_owned(), "5")
    }),
    GROUP.is("a message in fragments is put together", |agent| {
        let mut running = Running::start(agent, &plain(&["cat"]))?;
        running.stdin.part(Data::Binary, b"one ", false)?;
        running.stdin.part(Data::Continue, b"two ", false)?;
        running.stdin.part(Data::Continue, b"three", true)?;
        same("the output", running.finish(agent)?.out, "one two three")
    }),
    GROUP.is("a reader that stalls loses nothing and stops nobody", |agent| {
        const SIZE: usize = 4 << 20;
        let command = format!("head -c {SIZE} /dev/zero");
        let mut running = Running::start(agent, &script(&command))?;
        thread::sleep(Duration::from_millis(300));
        // Meanwhile, the first command is still blocked.
        same("another's output", run(agent, &plain(&["echo", "hi"]), b"")?.out, "hi\n")?;
        let out = running.output()?;
        same("the number of bytes", out.len(), SIZE)
    }),
    GROUP.is("what a command writes right before it ends arrives, 30 times of 30", |agent| {
        for number in 0..30 {
            let request = if number % 2 == 0 { script("echo bye") } else { terminal("echo bye") };
            let done = run(agent, &request, b"")?;
            same("the output", done.out.trim_end(), "bye")?;
        }
        Ok(())
    }),
    ENDS.is("exit codes are told: 0, 3, 255", |agent| {
        for code in [0, 3, 255] {
            same("the exit code", run(agent, &script(&format!("exit {code}")), b"")?.code, code)?;
        }
        Ok(())
    }),
    ENDS.is("no such command: Failure with 127", |agent| {
        fails(agent, &plain(&["no-such-command"]), 127)?;
        fails(agent, &plain(&["/no/such/command"]), 127)
    }),
    ENDS.is("a file that cannot be executed: Failure with 126", |agent| {
        fails(agent, &plain(&["/etc/passwd"]), 126)
    }),
    ENDS.is("a working directory that is not there: 127", |agent| {
        fails(agent, &with(plain(&["true"]), json!({"cwd": "/no/such/directory"})), 127)
    }),
    ENDS.is("death by a signal is 128 and the signal", |agent| {
        same("the exit code", run(agent, &script("kill -9 $$"), b"")?.code, 137)?;
        same("the exit code", run(agent, &script("kill -15 $$"), b"")?.code, 143)
    }),
    ENDS.is("a signal on the control socket arrives", |agent| {
        let mut running = Running::start(
            agent,
            &script("trap 'echo caught; exit 8' USR1; echo up; while :; do sleep 0.05; done"),
        )?;
        let _up = running.out.as_mut().ok_or("no output")?.until("up")?;
        running.signal(10)?;
        let done = running.finish(agent)?;
        same("the output", done.out, "caught\n")?;
        same("the exit code", done.code, 8)?;
        let mut running = Running::start(agent, &plain(&["sleep", "20"]))?;
        running.signal(9)?;
        same("the exit code", running.finish(agent)?.code, 137)
    }),
    ENDS.is("it goes to the command alone, not to its children", |agent| {
        let text = "trap 'wait; exit 9' TERM; sh -c 'sleep 0.7; echo child' & echo up; wait";
        let mut running = Running::start(agent, &script(text))?;
        let _up = running.out.as_mut().ok_or("no output")?.until("up")?;
        running.signal(15)?;
        let done = running.finish(agent)?;
        same("the output", done.out, "child\n")?;
        same("the exit code", done.code, 9)
    }),
    ENDS.is("control messages that mean nothing are ignored", |agent| {
        let mut running = Running::start(agent, &plain(&["cat"]))?;
        for text in [
            "",
            "{",
            "[1]",
            "{\"command\":\"dance\",\"args\":null,\"signal\":9}",
            "{\"command\":\"window-resize\",\"args\":{\"width\":\"x\"}}",
        ] {
            running.control.text(text)?;
        }
        running.control.binary(&[0xff, 0x00])?;
        running.stdin.binary(b"alive")?;
        let _back = running.out.as_mut().ok_or("no output")?.until("alive")?;
        same("the exit code", running.finish(agent)?.code, 0)
    }),
    ENDS.is("a control socket that drops kills the command", |agent| {
        let Running { exec, control, stdin, out, err } =
            Running::start(agent, &plain(&["sleep", "30"]))?;
        control.drop_line();
        let code = exec.code(agent, SOON)?;
        drop((stdin, out, err));
        same("the exit code", code, 137)
    }),
    ENDS.is("a goodbye on control kills it too", |agent| {
        let seconds = patient(Duration::from_secs(3)).as_secs();
        let text = format!("sleep {seconds}; echo done; exit 9");
        let mut running = Running::start(agent, &script(&text))?;
        running.control.close()?;
        same("the output", running.finish(agent)?.out, "")
    }),
    ENDS.is("but not if its output had ended before", |agent| {
        let mut running = Running::start(agent, &script("exec >&- 2>&- <&-; sleep 1.5; exit 9"))?;
        thread::sleep(Duration::from_millis(700));
        running.control.close()?;
        same("the exit code", running.finish(agent)?.code, 9)
    }),
    ENDS.slow().is("a missing socket: Failure after 5 s, and nothing was run", |agent| {
        let begun = Instant::now();
        let exec = Exec::ask(agent, &script("touch /tmp/was-run"))?;
        let sockets =
            (exec.socket(agent, "control")?, exec.socket(agent, "0")?, exec.socket(agent, "1")?);
        let operation = exec.ended(agent, Duration::from_secs(9))?;
        let took = begun.elapsed();
        drop(sockets);
        let why = "Timed out waiting for websockets to connect";
        has(&operation, json!({"status": "Failure", "err": why}))?;
        hold("it did not take 5 s", took > Duration::from_millis(4000))?;
        hold("the command was run", agent.sh("test -e /tmp/was-run").0 != 0)
    }),
    ENDS.slow().is("a child that keeps the output open is waited for", |agent| {
        let begun = Instant::now();
        let done = run(agent, &script("(sleep 2; echo late) & echo now"), b"")?;
        same("the output", done.out.replace('\n', " "), "now late ")?;
        hold("it did not wait for 2 s", begun.elapsed() > Duration::from_millis(1900))
    }),
    ENDS.slow().is("with a terminal, such a child is not waited for", |agent| {
        // Without the trap, HUP would end the child together with the shell.
        let text = "trap '' HUP; sleep 600 & echo $! >/tmp/child; echo now; sleep 0.2; exit 4";
        let done = run(agent, &terminal(text), b"");
        let (killed, _) = agent.sh("kill $(cat /tmp/child)");
        let done = done?;
        same("the exit code", done.code, 4)?;
        same("the output", done.out.trim_end(), "now")?;
        hold("the child had ended before", killed == 0)
    }),
    ENDS.is("all sockets are closed in the end", |agent| {
        let mut running = Running::start(agent, &script("echo x"))?;
        let (mut out, mut err) =
            (running.out.take().ok_or("no output")?, running.err.take().ok_or("no errors")?);
        let _output = (out.output()?, err.output()?);
        let _closed_already = running.stdin.barrier();
        for (name, socket) in [
            ("control", &mut running.control),
            ("0", &mut running.stdin),
            ("1", &mut out),
            ("2", &mut err),
        ] {
            loop {
                match socket.within(SOON).any() {
                    Ok(Message::Close(_)) => break,
                    Ok(_) => {}
                    Err(error) if error == "the connection ended" => break,
                    Err(_) => return Err(Miss::No(format!("socket {name} stays open"))),
                }
            }
        }
        Ok(())
    }),
    ENDS.alone().is("fifty commands at once", |agent| {
        const COUNT: usize = 50;
        let mut all = Vec::new();
        for _ in 0..COUNT {
            all.push(Running::start(agent, &terminal("cat"))?);
        }
        for (index, running) in all.iter_mut().enumerate() {
            running.stdin.binary(format!("number {index};\n").as_bytes())?;
        }
        for (index, mut running) in all.into_iter().enumerate() {
            let _echo = running.stdin.until(&format!("number {index};"))?;
            running.stdin.binary(b"\x04")?;
            same("the exit code", running.finish(agent)?.code, 0)?;
        }
        Ok(())
    }),
];

fn fails(agent: &Agent, request: &Value, code: i32) -> Claim {
    // The sockets must stay open: losing them would kill the command.
    let running = Running::start(agent, request)?;
    let operation = running.exec.ended(agent, TIMEOUT)?;
    let wanted = json!({"status": "Failure", "status_code": 400, "metadata": {"return": code}});
    has(&operation, wanted)?;
    hold("err is empty", operation["err"].as_str().is_some_and(|text| !text.is_empty()))
}
