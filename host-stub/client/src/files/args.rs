//! Arguments of `file`. A path in the guest is written as for `lxc file`, NAME/path, or after the
//! instance: NAME path.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

use super::tree::Owner;
use crate::store;

#[derive(Debug, Subcommand)]
pub enum FileCommand {
    /// Push files into the guest
    ///
    /// With -r, a target that does not exist becomes the copy itself, as with cp -r; lxc creates
    /// TARGET/NAME instead. A target that exists or ends with a slash is treated as lxc does.
    /// Pipes, sockets and devices in a directory are skipped.
    #[command(override_usage = "mote-host file push [OPTIONS] FILE ... NAME/PATH\n       \
                                mote-host file push [OPTIONS] NAME FILE ... PATH")]
    Push(PushArgs),
    /// Pull files from the guest
    ///
    /// With -r, a target that does not exist becomes the copy itself, as with cp -r; lxc creates
    /// TARGET/NAME instead. Nothing is written outside of the target, whatever the guest lists. A
    /// file in the way is replaced, and no symbolic link in the target's path is followed. Pipes,
    /// sockets and devices are skipped; setuid, setgid and sticky bits are dropped.
    #[command(override_usage = "mote-host file pull [OPTIONS] NAME/PATH ... FILE\n       \
                                mote-host file pull [OPTIONS] NAME PATH ... FILE")]
    Pull(PullArgs),
    /// List a directory
    Ls(WhereArgs),
    /// Remove files and empty directories
    #[command(visible_alias = "delete")]
    Rm {
        #[command(flatten)]
        paths: WhereArgs,
        /// Remove directories with their content
        #[arg(short, long)]
        recursive: bool,
        /// Accepted for compatibility with rm; nothing prompts anyway
        #[arg(short, long)]
        force: bool,
    },
    /// Create directories
    Mkdir {
        #[command(flatten)]
        paths: WhereArgs,
        #[command(flatten)]
        new: NewArgs,
    },
    /// Print attributes (JSON)
    Stat(WhereArgs),
}

#[derive(Debug, Args)]
pub struct WhereArgs {
    /// NAME/PATH ..., or NAME PATH ...
    #[arg(required = true, value_name = "NAME/PATH")]
    pub(super) paths: Vec<String>,
}

#[derive(Debug, Args)]
pub struct PushArgs {
    /// Local files (- is stdin), and the target in the guest
    #[arg(required = true, num_args = 2.., value_name = "FILE")]
    pub(super) paths: Vec<String>,
    /// Push directories with their content
    #[arg(short, long)]
    pub(super) recursive: bool,
    #[command(flatten)]
    pub(super) new: NewArgs,
}

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "clap represents a switch as a bool")]
pub struct PullArgs {
    /// Files in the guest, and the local target (- is stdout)
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    pub(super) paths: Vec<String>,
    /// Pull directories with their content
    #[arg(short, long)]
    pub(super) recursive: bool,
    /// Create the target directory too
    #[arg(short = 'p', long)]
    pub(super) create_dirs: bool,
}

// A comment would replace the command's in its help.
#[derive(Debug, Args)]
pub struct NewArgs {
    /// Create missing parent directories too
    #[arg(short = 'p', long)]
    pub(super) create_dirs: bool,
    /// Permissions, octal as for chmod: 0644
    #[arg(long, value_name = "OCTAL", value_parser = octal)]
    pub(super) mode: Option<u32>,
    #[command(flatten)]
    pub(super) owner: Owner,
}

pub(super) fn octal(text: &str) -> Result<u32> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.with_context(|| format!("{text} is not an octal mode such as 644"))
}

/// Returns a path in the guest. As with real hosts, it is always absolute.
pub(super) fn path(text: &str) -> PathBuf {
    Path::new("/").join(text)
}

fn place(text: &str) -> Option<(&str, &str)> {
    let (name, _) = text.split_once('/')?;
    store::is_name(name).then(|| text.split_at(name.len()))
}

/// Returns the instance and its paths: `NAME PATH ...` or `NAME/PATH ...`.
pub(super) fn inside(paths: Vec<String>) -> Result<(String, Vec<String>)> {
    let Some((name, _)) = paths.first().and_then(|first| place(first)) else {
        let mut paths = paths.into_iter();
        let name = paths.next().context("an instance is needed")?;
        return Ok((name, paths.collect()));
    };
    let name = name.to_owned();
    let inside = paths.iter().map(|text| match place(text) {
        Some((theirs, path)) if theirs == name => Ok(path.to_owned()),
        _ => bail!("{text} is not in {name}: it must begin with {name}/"),
    });
    let inside = inside.collect::<Result<Vec<_>>>()?;
    Ok((name, inside))
}

/// Returns the instance, the arguments before its path, and the path: `NAME A ... PATH` or `A ...
/// NAME/PATH`. If both are possible, the first argument is the instance, provided that it begins
/// with the name of one.
pub(super) fn before(root: &Path, mut paths: Vec<String>) -> Result<(String, Vec<String>, String)> {
    let last = paths.pop().context("a path is needed")?;
    let is_first = paths.len() > 1 && paths.first().is_some_and(|first| store::exists(root, first));
    match place(&last) {
        Some((name, path)) if !is_first => Ok((name.to_owned(), paths, path.to_owned())),
        _ if paths.len() > 1 => {
            let name = paths.remove(0);
            Ok((name, paths, last))
        }
        _ => bail!("{last} is not in an instance: use NAME/PATH"),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the files are a test's own")]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn reads_guest_paths_with_or_after_the_instance() {
        let inside = |line: &str| inside(words(line)).ok();
        let both = |paths: &str| Some(("vm1".to_owned(), words(paths)));
        assert_eq!(inside("vm1 /a b/c"), both("/a b/c"));
        assert_eq!(inside("vm1/a vm1/b/c"), both("/a /b/c"));
        assert_eq!(inside("vm1/"), both("/"));
        assert_eq!(inside("vm1"), both(""));
        assert_eq!(inside("vm1/a other/b"), None);
    }

    #[test]
    fn reads_the_target_of_a_push_last() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("instances/vm1")).unwrap();
        std::fs::write(root.path().join("instances/vm1/instance.json"), "{}").unwrap();
        let before = |line: &str| before(root.path(), words(line)).ok();
        let as_vm1 = |files: &str, path: &str| Some(("vm1".into(), words(files), path.into()));
        assert_eq!(before("vm1 f /x"), as_vm1("f", "/x"));
        assert_eq!(before("f g vm1/x/"), as_vm1("f g", "/x/"));
        // A relative path in the guest that looks as if it began with an instance.
        assert_eq!(before("vm1 f x/y"), as_vm1("f", "x/y"));
        // A local file may have the name of an instance.
        assert_eq!(before("./vm1 f vm1/x"), as_vm1("./vm1 f", "/x"));
        assert_eq!(before("vm1 vm1/x"), as_vm1("vm1", "/x"));
        assert_eq!(before("other f /x"), Some(("other".into(), words("f"), "/x".into())));
        assert_eq!(before("f /x"), None);
    }

    #[test]
    fn reads_octal_modes() {
        assert_eq!(octal("0640").unwrap(), 0o640);
        assert!(octal("8").is_err() && octal("10000").is_err());
    }
}
