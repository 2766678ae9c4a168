//! Files (P§4.4).

use super::{FILES, REPORTS, SOON, exec, fails, host, much, sh, text};
use crate::conform::prelude::*;
use crate::plain;

pub(in super::super) const ALL: &[Check] = &[
    FILES.is("8 MiB (Incus) or 64 MiB (LXD), and trees, come and go unchanged", |agent| {
        let scratch = Scratch::new();
        let path = |name: &str| scratch.0.join(name);
        let (sent, back) = (path("sent"), path("back"));
        put(&sent, noise(much(agent)));
        agent.host(&["file", "push", NAME, plain(&sent), "/tmp/sent", "--mode", "640"])?;
        let file = File::open(&sent).map_err(|error| error.to_string())?;
        let sum = Command::new("sha256sum").stdin(file).output();
        let sum = text(&sum.map_err(|error| format!("sha256sum: {error}"))?.stdout);
        let script = ["-n", NAME, "--", "sh", "-c", "sha256sum </tmp/sent"];
        equal("the sum in the guest", exec(agent, &script, "")?.1, sum)?;
        agent.host(&["file", "pull", NAME, "/tmp/sent", plain(&back)])?;
        hold("what is pulled differs from what was pushed", read(&sent)? == read(&back)?)?;
        agent.host(&["file", "rm", NAME, "/tmp/sent"])?;
        let gone = fails(agent, &["file", "stat", NAME, "/tmp/sent"])?;
        hold(format!("a removed file: {gone}"), gone.contains("no such file"))?;
        // Files in /proc report no length.
        let version = agent.host(&["file", "pull", NAME, "/proc/version", "-"])?;
        hold(format!("/proc/version: {version}"), version.starts_with("Linux version"))?;
        let (tree, copy) = (path("tree"), path("copy"));
        put(tree.join("a/b/file"), "content");
        put(tree.join("empty"), "");
        symlink("a/b/file", tree.join("link")).map_err(|error| error.to_string())?;
        agent.host(&["file", "push", "-r", NAME, plain(&tree), "/tmp/tree"])?;
        agent.host(&["file", "pull", "-r", NAME, "/tmp/tree", plain(&copy)])?;
        let diff = Command::new("diff").args(["-r", "--no-dereference"]).args([&tree, &copy]).output();
        let diff = diff.map_err(|error| format!("diff: {error}"))?;
        hold(format!("a tree: {}", text(&diff.stdout)), diff.status.success())?;
        agent.host(&["file", "rm", "-r", NAME, "/tmp/tree"])?;
        Ok(())
    }),
    FILES.is("links, modes and directories", |agent| {
        let stat = |path: &str| -> Try<Value> {
            let shown = agent.host(&["file", "stat", NAME, path])?;
            serde_json::from_str(&shown).map_err(|error| format!("{shown}: {error}"))
        };
        agent.host(&["file", "mkdir", "-p", NAME, "/tmp/d/e", "--mode", "750"])?;
        let shown = stat("/tmp/d/e")?;
        equal("a directory", json!([shown["type"], shown["mode"]]), json!(["directory", "0750"]))?;
        let push = ["file", "push", NAME, "-", "/tmp/d/x", "--mode", "600", "--uid", "5", "--gid", "6"];
        let pushed = host(agent, &push, b"hi\n")?;
        hold(format!("from a pipe: {}", text(&pushed.stderr)), pushed.status.success())?;
        let shown = stat("/tmp/d/x")?;
        let of_file = ["uid", "gid", "mode", "size"].map(|name| &shown[name]);
        equal("a file", json!(of_file), json!([5, 6, "0600", 3]))?;
        equal("ln", sh(agent, "ln -s x /tmp/d/soft")?.0, 0)?;
        equal("a symbolic link", &stat("/tmp/d/soft")?["target"], "x")?;
        let listed = agent.host(&["file", "ls", NAME, "/tmp/d"])?;
        let names = listed.lines().filter_map(|line| line.split_whitespace().nth(8));
        equal(&listed, names.collect::<Vec<_>>(), ["e", "soft", "x"])?;
        hold(&listed, listed.contains("drwxr-x---") && listed.contains("soft -> x"))?;
        hold("a full directory: no words", !fails(agent, &["file", "rm", NAME, "/tmp/d"])?.is_empty())?;
        agent.host(&["file", "rm", "-r", NAME, "/tmp/d"])?;
        Ok(())
    }),
    FILES.is("OpenSSH's `sftp` works through the pipe", |agent| {
        let scratch = Scratch::new();
        let (source, back) = (scratch.0.join("to"), scratch.0.join("from"));
        put(&source, noise(1_000_000));
        let program = tool("MOTE_HOST", "target/debug/mote-host");
        let pipe = format!("{} --dir {} sftp {NAME}", plain(&program), plain(&locked(&agent.host).directory));
        let (to, from) = (plain(&source), plain(&back));
        let batch = scratch.0.join("batch");
        put(
            &batch,
            format!(
                "put {to} /tmp/y\nrename /tmp/y /tmp/z\nls -l /tmp\nget /tmp/z {from}\nrm /tmp/z\nbye\n"
            ),
        );
        let sftp = Command::new("sftp").args(["-q", "-b", plain(&batch), "-D", &pipe]).output();
        let Ok(output) = sftp else {
            skipped("sftp (openssh-client)");
            return Ok(());
        };
        let said = text(&output.stdout);
        let error = text(&output.stderr);
        hold(format!("it says {said} {error}"), output.status.success() && said.contains("1000000"))?;
        if read(&source)? == read(&back)? { Ok(()) } else { Err(Miss::Differs("other bytes".into())) }
    }),
    REPORTS.is("state and metrics are what the host decodes", |agent| {
        let state = agent.host(&["state", NAME, "--json"])?;
        let state: Value = serde_json::from_str(&state).map_err(|error| error.to_string())?;
        hold(state.to_string(), state["processes"].as_i64().is_some_and(|count| count > 0))?;
        let lo = &state["network"]["lo"];
        let own =
            json!({"family": "inet", "address": "127.0.0.1", "netmask": "8", "scope": "local"});
        let has_own = lo["addresses"].as_array().is_some_and(|all| all.contains(&own));
        hold(lo.to_string(), lo["type"] == "loopback" && lo["state"] == "up" && has_own)?;
        // LXD 5.0.2 reports no `total`.
        let usage = state["memory"]["usage"].as_u64();
        hold(state.to_string(), usage.is_some_and(|usage| usage > 10 << 20))?;
        let metrics = agent.host(&["metrics", NAME])?;
        let prefix = agent.column.pick("lxd", "incus");
        for (name, least) in [
            ("cpu_seconds_total", 0.0),
            ("memory_MemTotal_bytes", 2e8),
            ("filesystem_size_bytes", 1e6),
            ("network_receive_bytes_total", 0.0),
            ("disk_read_bytes_total", 1.0),
            ("procs_total", 1.0),
        ] {
            let begin = format!("{prefix}_{name}{{");
            let line = metrics.lines().find(|line| line.starts_with(&begin)).unwrap_or_default();
            let value =
                line.rsplit(' ').next().and_then(|value| value.parse().ok()).unwrap_or(-1.0);
            hold(format!("{name}: {line}"), value >= least)?;
        }
        hold("metrics have no end", metrics.ends_with("# EOF\n"))
    }),
    // Checks that state and metrics start no process: in this VM no mount can hang.
    REPORTS.of("P§4.6").is("metrics start no process", |agent| {
        let forks = || -> Try<u64> {
            let text = agent.guest("sed -n 's/^processes //p' /proc/stat")?;
            text.trim().parse().map_err(|_| text)
        };
        // The test itself starts processes, and so may others in the guest.
        for _ in 0..5 {
            let (first, second) = (forks()?, forks()?);
            agent.host(&["metrics", NAME])?;
            if forks()? - second == second - first {
                return Ok(());
            }
        }
        hold("each of five starts some", false)
    }),
    // Debian's incus-agent does not support port-forward.
    REPORTS.of("P§4.7").incus().is("connections are carried into the guest", |agent| {
        agent
            .guest("(nc -l -p 8080 -e sh -c 'read x; echo got $x' >/dev/null 2>&1 &); sleep 0.5")?;
        let mut command = agent.command(&["port-forward", NAME, "127.0.0.1:0", "8080"]);
        let mut forward = Process::bounded(command.stdout(Stdio::piped()));
        let mut address = String::new();
        let output = forward.0.stdout.take().ok_or("no pipe")?;
        let talk = || -> io::Result<String> {
            BufReader::new(output).read_line(&mut address)?;
            let mut stream = TcpStream::connect(address.trim())?;
            stream.set_read_timeout(Some(SOON))?;
            stream.write_all(b"hello\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        equal("the answer", talk().map_err(|error| error.to_string())?.as_str(), "got hello\n")
    }),
];

fn read(path: &Path) -> Try<Vec<u8>> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}
