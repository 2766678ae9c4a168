//! Files (P§4.4).

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

use super::{FILES, exec, fails, host, much, text};
use crate::conform::{Check, Miss, equal, hold};
use crate::{NAME, Scratch, noise, plain, put, tool};

pub(in super::super) const ALL: &[Check] = &[
    FILES.is("8 MiB (Incus) or 64 MiB (LXD), and trees, come and go unchanged", |agent| {
        let scratch = Scratch::new();
        let path = |name: &str| scratch.0.join(name);
        let (sent, back) = (path("sent"), path("back"));
        put(&sent, noise(much(agent)));
        let begun = Instant::now();
        agent.host(&["file", "push", NAME, plain(&sent), "/tmp/sent", "--mode", "640"])?;
        let pushed = begun.elapsed();
        let file = File::open(&sent).map_err(|error| error.to_string())?;
        let sum = Command::new("sha256sum").stdin(file).output();
        let sum = text(&sum.map_err(|error| format!("sha256sum: {error}"))?.stdout);
        let script = ["-n", NAME, "--", "sh", "-c", "sha256sum </tmp/sent"];
        equal("the sum in the guest", exec(agent, &script, "")?.1, sum)?;
        let begun = Instant::now();
        agent.host(&["file", "pull", NAME, "/tmp/sent", plain(&back)])?;
        println!("{}: pushed in {pushed:?}, pulled in {:?}", agent.column.title(), begun.elapsed());
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
        std::os::unix::fs::symlink("a/b/file", tree.join("link")).map_err(|error| error.to_string())?;
        agent.host(&["file", "push", "-r", NAME, plain(&tree), "/tmp/tree"])?;
        agent.host(&["file", "pull", "-r", NAME, "/tmp/tree", plain(&copy)])?;
        let diff = Command::new("diff").args(["-r", "--no-dereference"]).args([&tree, &copy]).output();
        let diff = diff.map_err(|error| format!("diff: {error}"))?;
        hold(format!("a tree: {}", text(&diff.stdout)), diff.status.success())?;
        agent.host(&["file", "rm", "-r", NAME, "/tmp/tree"])?;
        Ok(())
    }),
    FILES.is("links, modes and directories", |agent| {
        let stat = |path: &str| -> Result<Value, String> {
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
        agent.host(&["file", "chmod", NAME, "644", "/tmp/d/x"])?;
        equal("chmod", &stat("/tmp/d/x")?["mode"], "0644")?;
        agent.host(&["file", "ln", "-s", NAME, "x", "/tmp/d/soft"])?;
        equal("a symbolic link", &stat("/tmp/d/soft")?["target"], "x")?;
        agent.host(&["file", "ln", NAME, "/tmp/d/x", "/tmp/d/hard"])?;
        agent.host(&["file", "mv", NAME, "/tmp/d/hard", "/tmp/d/moved"])?;
        let listed = agent.host(&["file", "ls", NAME, "/tmp/d"])?;
        let names = listed.lines().filter_map(|line| line.split_whitespace().nth(8));
        equal(&listed, names.collect::<Vec<_>>(), ["e", "moved", "soft", "x"])?;
        hold(&listed, listed.contains("drwxr-x---") && listed.contains("soft -> x"))?;
        hold("a full directory: no words", !fails(agent, &["file", "rm", NAME, "/tmp/d"])?.is_empty())?;
        agent.host(&["file", "rm", "-r", NAME, "/tmp/d"])?;
        let space = agent.host(&["file", "df", NAME, "/tmp"])?;
        hold(format!("df: {space}"), space.contains("\"size\":"))
    }),
    FILES.is("OpenSSH's `sftp` works through the pipe", |agent| {
        let scratch = Scratch::new();
        let (source, back) = (scratch.0.join("to"), scratch.0.join("from"));
        put(&source, noise(1_000_000));
        let program = tool("MOTE_HOST", "target/debug/mote-host");
        let directory = agent.directory();
        let pipe = format!("{} --dir {} sftp {NAME}", plain(&program), plain(&directory));
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
            crate::skipped("sftp (openssh-client)");
            return Ok(());
        };
        let said = text(&output.stdout);
        let error = text(&output.stderr);
        hold(format!("it says {said} {error}"), output.status.success() && said.contains("1000000"))?;
        if read(&source)? == read(&back)? { Ok(()) } else { Err(Miss::Differs("other bytes".into())) }
    }),
];

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}
