//! The crates of the workspace and their sources.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::rules::Sources;

/// The project's folder.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn said(command: &mut Command) -> String {
    let output = command.current_dir(root()).output().expect("a command that runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("an answer in UTF-8")
}

/// The first file of each crate, from the project's root.
pub(crate) fn roots() -> Vec<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["metadata", "--no-deps", "--offline", "--format-version=1"];
    let said = said(Command::new(cargo).args(arguments));
    let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let above = said["workspace_root"].as_str().expect("the workspace's root");
    let packages = said["packages"].as_array().expect("packages").iter();
    let targets = packages.flat_map(|one| one["targets"].as_array().into_iter().flatten());
    let paths = targets.filter_map(|one| one["src_path"].as_str());
    paths
        .map(|path| Path::new(path).strip_prefix(above).unwrap_or(path.as_ref()).to_owned())
        .collect()
}

/// Every source file, tracked or about to be.
pub(crate) fn sources() -> Sources {
    let mut git = Command::new("git");
    // Whoever owns the folder: containers have it from somebody else.
    git.args(["-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard"]);
    let said = said(git.arg("*.rs"));
    // One that was removed is still on the list.
    let read = |path: &str| Some((path.into(), std::fs::read_to_string(root().join(path)).ok()?));
    let sources: Sources = said.lines().filter_map(read).collect();
    assert!(sources.len() > 200, "only {} files", sources.len());
    sources
}
