//! `file push` and `file pull`: sources and targets. Each error names the side on which it
//! occurred.

use std::io::stdin;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::args::{PullArgs, PushArgs, before, inside, path};
use super::local_directory::{Missing, Target, place};
use super::session::{local, start, unbuffered_stdout};
use super::tree::{self, Owner, Unlike};

pub(super) fn push(root: &Path, args: PushArgs) -> Result<()> {
    let owner = Owner::from(args.owner);
    let (name, sources, target) = before(root, args.paths)?;
    let session = &mut start(root, &name)?;
    let into_directory = target.ends_with('/')
        || sources.len() > 1
        || session.stat(&path(&target)).is_ok_and(|attrs| attrs.is_directory());
    if args.create_dirs {
        let target = path(&target);
        let parent = if into_directory { Some(target.as_path()) } else { target.parent() };
        parent.map_or(Ok(()), |parent| tree::make_parents(session, parent))?;
    }
    for source in sources {
        let source = Path::new(&source);
        let to = match (into_directory, source.file_name()) {
            (true, Some(name)) => path(&target).join(name),
            (true, None) | (false, _) => path(&target),
        };
        if source == Path::new("-") {
            if into_directory {
                bail!("stdin needs a file's name in the guest, not a directory's");
            }
            let mode = args.mode.unwrap_or(0o644);
            let unlike = &mut Unlike::default();
            tree::push_file(session, &mut stdin().lock(), ("-", 0), &to, (mode, owner), unlike)?;
        } else if args.recursive {
            tree::push(session, &named(source)?, &to, args.mode, owner)?;
        } else {
            tree::push_one(session, source, &to, args.mode, owner)?;
        }
    }
    Ok(())
}

/// Resolves links in the parent of a path, but not the path itself.
fn named(path: &Path) -> Result<PathBuf> {
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    let (above, name) = match path.file_name() {
        Some(name) => (parent.unwrap_or(Path::new(".")), name),
        None => (path, "".as_ref()),
    };
    let above = above.canonicalize().with_context(|| local(above))?;
    Ok(if name.is_empty() { above } else { above.join(name) })
}

pub(super) fn pull(root: &Path, mut args: PullArgs) -> Result<()> {
    let target = args.paths.pop().context("a target is needed")?;
    let (name, sources) = inside(args.paths)?;
    if sources.is_empty() {
        bail!("a path in {name} and a target are needed");
    }
    let session = &mut start(root, &name)?;
    let kind = if sources.len() > 1 { Target::Directory } else { Target::Any };
    let missing = if args.create_dirs { Missing::Make } else { Missing::Refuse };
    for source in sources {
        let from = path(&source);
        if target == "-" {
            tree::pull_file(session, &from, &mut unbuffered_stdout()?)?;
            continue;
        }
        let to = place(&from, Path::new(&target), kind, missing)?;
        if args.recursive {
            tree::pull(session, &from, to)?;
        } else {
            tree::pull_one(session, &from, to)?;
        }
    }
    Ok(())
}
