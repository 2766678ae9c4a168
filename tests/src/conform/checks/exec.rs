//! Exec: a command's environment, and its effects (P§4.1).

use crate::conform::prelude::*;

const GROUP: Group = Group::new("Exec: what a command gets", "P§4.1");
const TTY: Group = Group::new("Exec with a terminal", "P§4.1");

pub(super) const ALL: &[Check] = &[
    GROUP.is("there are secrets for `control`, `0`, `1`, `2`: 64 hex digits each", |agent| {
        let exec = Exec::ask(agent, &plain(&["true"]))?;
        same("the list", fds(&exec), "0 1 2 control")?;
        let fds = exec.made["metadata"]["fds"].as_object();
        let mut all: Vec<_> =
            fds.into_iter().flatten().filter_map(|(_, value)| value.as_str()).collect();
        let is_secret =
            |text: &&str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        hold("a secret has another form", all.iter().all(is_secret))?;
        all.sort_unstable();
        all.dedup();
        same("the number of different ones", all.len(), 4)
    }),
    GROUP.is("the operation shows command, environment, interactive", |agent| {
        let request = with(plain(&["true", "x"]), json!({"environment": {"A": "b"}}));
        let made = Exec::ask(agent, &request)?.made;
        has(&made["metadata"], json!({"command": ["true", "x"], "interactive": false}))?;
        same("environment.A", &made["metadata"]["environment"]["A"], &json!("b"))
    }),
    GROUP.is("without `wait-for-websocket` it is 400, in these words", |agent| {
        let request = with(plain(&["true"]), json!({"wait-for-websocket": false}));
        let answer = agent.ask("POST", "/1.0/exec", &request.to_string())?;
        same("it", answer.short(), "400 Websockets are required for VM exec")
    }),
    GROUP.is("what does not parse is 400 or 500 in the envelope", |agent| {
        for body in ["{", "{\"command\":\"sh\",\"wait-for-websocket\":true}"] {
            let answer = agent.ask("POST", "/1.0/exec", body)?;
            hold(
                format!("`{body}` is {}", answer.status),
                answer.status == 400 || answer.status == 500,
            )?;
            same("type", &answer.json()["type"], &json!("error"))?;
        }
        Ok(())
    }),
    GROUP.is("the command starts when all sockets are there, in any order", |agent| {
        let exec = Exec::ask(agent, &script("echo started"))?;
        let mut err = exec.socket(agent, "2")?;
        let mut out = exec.socket(agent, "1")?;
        let mut stdin = exec.socket(agent, "0")?;
        let running = agent.get(&exec.operation)?["status_code"].as_u64() == Some(103);
        hold("it is not running before", running)?;
        let _control = exec.socket(agent, "control")?;
        same("the output", String::from_utf8_lossy(&out.output()?), "started\n")?;
        let _nothing = err.output()?;
        let _closed_already = stdin.barrier();
        same("the exit code", exec.code(agent, TIMEOUT)?, 0)
    }),
    GROUP.is("the environment is exactly what was asked for, and the defaults", |agent| {
        let wanted = "HOME=/root LANG=C.UTF-8 \
            PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM=xterm USER=root";
        same("it", env(agent, &json!({"TERM": "xterm"}))?, wanted)
    }),
    GROUP.is("what was asked for beats a default", |agent| {
        let given =
            json!({"HOME": "/tmp", "LANG": "C", "PATH": "/bin:/sbin", "USER": "", "x y": "a=b"});
        same("it", env(agent, &given)?, "HOME=/tmp LANG=C PATH=/bin:/sbin USER= x y=a=b")
    }),
    GROUP.is("the working directory is `HOME` by default", |agent| {
        same("it", output(agent, &plain(&["pwd"]))?, "/root")?;
        let request = with(plain(&["pwd"]), json!({"environment": {"HOME": "/tmp"}}));
        same("it", output(agent, &request)?, "/tmp")
    }),
    GROUP.is("the working directory can be given", |agent| {
        same("it", output(agent, &with(plain(&["pwd"]), json!({"cwd": "/proc"})))?, "/proc")
    }),
    GROUP.is("user and group are taken, without other groups", |agent| {
        let request = script("id -u; id -g; grep ^Groups: /proc/self/status");
        let request = with(request, json!({"user": 1000, "group": 1000, "cwd": "/"}));
        same("it", output(agent, &request)?.replace(['\n', '\t'], " "), "1000 1000 Groups: ".trim_end())
    }),
    GROUP.is("another user has no `HOME` and starts in `/`", |agent| {
        let request = with(script("pwd; echo \"${HOME-none}\""), json!({"user": 1000, "group": 1000}));
        same("it", output(agent, &request)?.replace('\n', " "), "/ none")
    }),
    GROUP.is("another user opens his pipes by name", |agent| {
        // Uses the targets of /dev/stdin and the other links, which the image lacks.
        let text = "cat </proc/self/fd/0; echo out >/proc/self/fd/1; echo err >/proc/self/fd/2";
        let done = run(agent, &with(script(text), json!({"user": 1000, "group": 1000})), b"in ")?;
        same("the output", done.out, "in out\n")?;
        same("the errors", done.err, "err\n")
    }),
    GROUP.is("root has no other groups either", |agent| {
        same("it", output(agent, &script("grep ^Groups: /proc/self/status"))?.trim_end(), "Groups:")
    }),
    GROUP.is("the command is looked for in the `PATH` asked for", |agent| {
        let _made = agent.guest("mkdir -p /tmp/path && printf '#!/bin/sh\\necho found\\n' >/tmp/path/onlyhere && chmod 755 /tmp/path/onlyhere")?;
        let request = with(plain(&["onlyhere"]), json!({"environment": {"PATH": "/tmp/path:/bin"}}));
        let done = run(agent, &request, b"")?;
        same("the exit code", done.code, 0)?;
        same("the output", done.out.trim_end(), "found")
    }),
    GROUP.is("it leads a session of its own", |agent| {
        // Fields 1, 5 and 6 of stat: pid, process group, session.
        let read = "read -r pid name state parent group session rest </proc/$$/stat";
        let text = output(agent, &script(&format!("{read}; echo $pid $group $session")))?;
        let all: Vec<_> = text.split(' ').collect();
        hold(
            "pid, group and session are not one",
            all.len() == 3 && all.iter().all(|one| *one == all[0]),
        )
    }),
    GROUP.is("it inherits nothing but its three descriptors", |agent| {
        // A glob would open a descriptor of its own.
        same("it", output(agent, &script("cd /proc/$$/fd; for fd in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do [ -e $fd ] || [ -L $fd ] && printf '%s ' $fd; done; true"))?.trim_end(), "0 1 2")
    }),
    GROUP.is("it finds no signal ignored or blocked", |agent| {
        let text = output(agent, &plain(&["grep", "-E", "^Sig(Ign|Blk):", "/proc/self/status"]))?;
        let zero = "0".repeat(16);
        same("it", text.replace(['\n', '\t'], " "), format!("SigBlk: {zero} SigIgn: {zero}"))
    }),
    GROUP.is("arguments arrive as they are", |agent| {
        let request = plain(&["printf", "%s|", "a b", "", "\"'\\$x", "zwölf", "-n"]);
        same("it", output(agent, &request)?, "a b||\"'\\$x|zwölf|-n|")
    }),
    TTY.is("there are secrets for `control` and `0` only", |agent| {
        same("the list", fds(&Exec::ask(agent, &terminal("true"))?), "0 control")
    }),
    TTY.is("all three descriptors are one PTY below `/dev/pts`", |agent| {
        let done = run(agent, &terminal("tty; tty <&1; tty <&2; sleep 0.2"), b"")?;
        let lines: Vec<_> = done.out.lines().map(str::trim_end).collect();
        same("the exit code", done.code, 0)?;
        hold("they differ", lines.len() == 3 && lines.iter().all(|line| *line == lines[0]))?;
        hold(format!("it is {}", lines[0]), lines[0].starts_with("/dev/pts/"))
    }),
    TTY.is("it is 80x25 if no size is given", |agent| {
        let size = run(agent, &terminal("stty size; sleep 0.2"), b"")?.out;
        same("rows and columns", size.trim_end(), "25 80")
    }),
    TTY.is("it has the size that is given", |agent| {
        let request = with(terminal("stty size; sleep 0.2"), json!({"width": 132, "height": 43}));
        same("rows and columns", run(agent, &request, b"")?.out.trim_end(), "43 132")
    }),
    TTY.is("`window-resize` resizes it", |agent| {
        let mut running = Running::start(
            agent,
            &terminal("trap 'stty size; sleep 0.2; exit' WINCH; echo up; while :; do sleep 0.1; done"),
        )?;
        let _up = running.stdin.until("up")?;
        running.tell(
            &json!({"command": "window-resize", "args": {"width": "100", "height": "31"}, "signal": 0}),
        )?;
        let text = running.stdin.until("100")?;
        let _done = running.finish(agent)?;
        hold("rows and columns are others", text.contains("31 100"))
    }),
    TTY.is("it is the controlling terminal: ^C interrupts", |agent| {
        let mut running = Running::start(
            agent,
            &terminal(
                "trap 'echo caught; sleep 0.2; exit 5' INT; echo up; while :; do sleep 0.1; done",
            ),
        )?;
        let _up = running.stdin.until("up")?;
        running.stdin.binary(b"\x03")?;
        let _caught = running.stdin.until("caught")?;
        same("the exit code", running.finish(agent)?.code, 5)
    }),
    TTY.is("output comes on `0`, and ends with the barrier", |agent| {
        let mut running =
            Running::start(agent, &terminal("echo out; echo err >&2; sleep 0.2; exit 6"))?;
        let mut text = Vec::new();
        let barrier = loop {
            match running.stdin.message()? {
                Message::Binary(bytes) => text.extend(bytes),
                other => break other,
            }
        };
        same("the output", String::from_utf8_lossy(&text).replace("\r\n", " "), "out err ")?;
        hold("the end is not an empty text", barrier == Message::text(""))?;
        running.stdin.barrier()?;
        same("the exit code", running.exec.code(agent, TIMEOUT)?, 6)
    }),
    TTY.is("^D ends a shell that reads from it", |agent| {
        let mut running = Running::start(agent, &terminal("echo up; cat; sleep 0.2; exit 7"))?;
        let _up = running.stdin.until("up")?;
        running.stdin.binary(b"typed\n\x04")?;
        let done = running.finish(agent)?;
        same("the exit code", done.code, 7)?;
        same("the number of times it is seen", done.out.matches("typed").count(), 2)
    }),
    TTY.is("another user owns what he opens there", |agent| {
        let request = terminal("echo there >/dev/tty; stat -c %u $(tty); sleep 0.2");
        let request = with(request, json!({"user": 1000, "group": 1000}));
        same("what is seen", run(agent, &request, b"")?.out.replace("\r\n", " "), "there 1000 ")
    }),
];

fn fds(exec: &Exec) -> String {
    let fds = exec.made["metadata"]["fds"].as_object();
    let mut names: Vec<_> = fds.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.join(" ")
}

fn env(agent: &Agent, environment: &Value) -> Try<String> {
    let text = output(agent, &with(plain(&["env"]), json!({"environment": environment})))?;
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    Ok(lines.join(" "))
}
