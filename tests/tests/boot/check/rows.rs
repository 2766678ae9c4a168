//! Reads `rows.txt`: problems of a guest, and the line that reports each.

use crate::world::{Boot, mount};
use mote_tests::prelude::*;

/// A problem, the command's arguments, and the line that reports it.
#[derive(Default)]
pub(super) struct Row {
    breaks: Vec<&'static str>,
    pub(super) args: Vec<&'static str>,
    pub(super) line: &'static str,
}

pub(super) fn of(group: &str) -> Vec<Row> {
    let (mut rows, mut row, mut here) = (Vec::new(), Row::default(), false);
    for line in include_str!("rows.txt").lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            here = heading == group;
        } else if !here || line.is_empty() || line.starts_with("# ") {
        } else if let Some(expected) = line.strip_prefix("= ") {
            rows.push(Row { line: expected, ..std::mem::take(&mut row) });
        } else if let Some(args) = line.strip_prefix("args ") {
            row.args = args.split(' ').collect();
        } else {
            row.breaks.push(line);
        }
    }
    assert!(rows.len() > 2, "no rows of {group}");
    rows
}

impl Row {
    pub(super) fn break_guest(&self, boot: &Boot) {
        for line in &self.breaks {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let (path, text) = rest.split_once(' ').unwrap_or((rest, ""));
            step(boot, word, path, text);
        }
    }
}

fn step(boot: &Boot, word: &str, path: &str, text: &str) {
    let shared = |name: &str| boot.host.share.join(name);
    match word {
        "gone" => fs::remove_dir_all(boot.root(path)).expect("the guest"),
        "put" => boot.put(path, &format!("{text}\n")),
        "fifo" => fifo(&boot.root(path)),
        "link" => link(boot, path, text.into()),
        "share" => boot.share(path, text),
        "unshare" => fs::remove_file(shared(path)).expect("the guest"),
        "copy" => drop(fs::copy(shared(path), shared(text)).expect("the guest")),
        "tmpfs" => mount(&["-t", "tmpfs", "-o", path, "tmpfs"], &boot.root("run")),
        "fill" => {
            fs::create_dir(boot.root("run/mote")).expect("the guest");
            boot.put("run/full", &"x".repeat(4096));
        }
        "busy" => open_port(boot),
        "two-servers" => two_servers(boot),
        "own-certificate" => {
            let conf = fs::read_to_string(shared("agent.conf")).expect("the guest");
            let conf: Value = serde_json::from_str(&conf).expect("the guest");
            boot.share("server.crt", conf["certificate"].as_str().expect("the guest"));
        }
        other => panic!("rows.txt: {other}"),
    }
}

fn link(boot: &Boot, path: &str, to: PathBuf) {
    let place = boot.root(path);
    fs::create_dir_all(place.parent().expect("the guest")).expect("the guest");
    symlink(to, place).expect("the guest");
}

pub(super) fn two_servers(boot: &Boot) {
    boot.put("sys/class/virtio-ports/vport0p2/name", "org.linuxcontainers.incus\n");
    fifo(&boot.root("dev/vport0p2"));
}

/// Two processes have the port open. The first belongs to a user who has a file of this name in a
/// private namespace.
fn open_port(boot: &Boot) {
    let own = |kind: &str| fs::read_link(format!("/proc/self/ns/{kind}")).expect("a namespace");
    for (pid, mounts, user) in [(76, "mnt:[1]".into(), 1000), (77, own("mnt"), 0)] {
        let of = |name: &str| format!("proc/{pid}/{name}");
        boot.put(&of("status"), &format!("Name:\tcat\nUid:\t{user}\t{user}\t{user}\n"));
        boot.put(&of("comm"), "cat\n");
        // The port is the process' standard input, as in `cat </dev/vport0p1`.
        link(boot, &of("fd/0"), "/dev/vport0p1".into());
        link(boot, &of("ns/mnt"), mounts);
        link(boot, &of("ns/user"), own("user"));
    }
}
