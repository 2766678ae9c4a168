//! The project's own text, for tests that check it.

use crate::prelude::*;

/// Texts by their paths below the project's root.
pub type Sources = BTreeMap<PathBuf, String>;

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

pub fn printed(command: &mut Command) -> String {
    let output = command.current_dir(root()).output().expect("a command that runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Reads every text file that is tracked or not ignored.
pub fn tracked() -> Sources {
    let mut git = Command::new("git");
    // In containers the directory may belong to another user.
    git.args([
        "-c",
        "safe.directory=*",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let names = printed(&mut git);
    // A deleted file is still listed; archives are not text.
    let read = |name: &str| Some((name.into(), fs::read_to_string(root().join(name)).ok()?));
    let all: Sources = names.split('\0').filter_map(read).collect();
    assert!(all.len() > 300, "only {} files", all.len());
    all
}

pub fn none(what: &str, troubles: impl IntoIterator<Item = String>) {
    let troubles: Vec<_> = troubles.into_iter().collect();
    assert!(troubles.is_empty(), "{what}:\n{}", troubles.join("\n"));
}
