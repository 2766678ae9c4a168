//! An artificial `/proc` with distinct numbers, and the agent's report about it.
#![allow(clippy::missing_panics_doc, clippy::unwrap_used)] // every caller is a test

use crate::prelude::*;

/// Creates a root in which these processes run: (pid, whether it has a program).
pub fn root(root: &Path, processes: impl Iterator<Item = (u32, bool)>) {
    let at = |path: &str| root.join(path);
    let files = concat!(env!("CARGO_MANIFEST_DIR"), "/src/report/root");
    assert!(Command::new("cp").args(["-rT", files]).arg(root).status().unwrap().success());
    for directory in ["run/user 1000", "srv", "var/lib/lxcfs"] {
        fs::create_dir_all(at(directory)).unwrap();
    }
    for (pid, program) in processes {
        fs::create_dir(at(&format!("proc/{pid}"))).unwrap();
        if program {
            symlink("/bin/true", at(&format!("proc/{pid}/exe"))).unwrap();
        }
    }
}

pub fn report(root: &Path, flavour: &str, what: &str) -> Value {
    let mut command = Command::new(agent());
    command.args(["report", what, "--flavour", flavour, "--root"]).arg(root);
    let out = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(out.status.success(), "{}", out.status);
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(text.find('\n'), Some(text.len() - 1), "one line: {text}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}
