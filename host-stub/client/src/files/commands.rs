//! `file`: push, pull and the other commands over the agent's SFTP, with the requests that real
//! hosts send (P§4.4); and `sftp`, the bare stream for another client.

use std::io::{Write, stdin, stdout};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::args::{FileCommand, NewArgs, PullArgs, PushArgs, before, inside, path};
use super::local_directory::{Missing, Target, place};
use super::session::{self, Session, guest, local, start};
use super::sftp::wire::Attrs;
use super::tree::{self, Left, Pull, Push, Unlike};
use crate::common::limits::LISTING;
use crate::daemon;
use crate::exec::terminal::unbuffered;
use crate::{connecting, printable};

pub fn run(root: &Path, command: FileCommand) -> Result<()> {
    match command {
        FileCommand::Push(args) => push(root, args),
        FileCommand::Pull(args) => pull(root, args),
        FileCommand::Ls(args) => on_one(root, args.paths, list),
        FileCommand::Rm { paths, recursive, .. } => on_each(root, paths.paths, |session, path| {
            if recursive { tree::remove(session, path, Left::ALL) } else { session.remove(path) }
        }),
        FileCommand::Mkdir { paths, new } => make_directories(root, paths.paths, &new),
        FileCommand::Stat(args) => on_each(root, args.paths, show),
    }
}

pub fn pipe(root: &Path, name: &str) -> Result<()> {
    let stream = session::connect(&daemon::reach(root, name)?, connecting())?;
    let mut sending = stream.try_clone()?;
    std::thread::spawn(move || {
        // Pass on the end of input, after which the server ends the session.
        let _cut = std::io::copy(&mut stdin().lock(), &mut sending);
        let _told = sending.shutdown(std::net::Shutdown::Write);
    });
    let mut receiving = stream;
    std::io::copy(&mut receiving, &mut unbuffered(stdout())?)?;
    Ok(())
}

fn list(session: &mut Session, path: &Path) -> Result<()> {
    for entry in session.list(path, LISTING)?.0 {
        let mut line = printable::text(&entry.long);
        if entry.attrs.is_link() {
            let target = session.readlink(&path.join(&entry.name))?;
            line += &format!(" -> {}", printable::name(target));
        }
        writeln!(stdout(), "{line}")?;
    }
    Ok(())
}

fn make_directories(root: &Path, paths: Vec<String>, new: &NewArgs) -> Result<()> {
    on_each(root, paths, |session, path| {
        if new.create_dirs {
            tree::make_parents(session, path)?;
        } else {
            session.mkdir(path, &Attrs::default())?;
        }
        let attrs = Attrs {
            mode: Some(new.mode.unwrap_or(0o755)),
            owner: new.owner.over(Some((0, 0))),
            ..Attrs::default()
        };
        session.setstat(path, &attrs)
    })
}

fn on_each(
    root: &Path,
    paths: Vec<String>,
    mut act: impl FnMut(&mut Session, &Path) -> Result<()>,
) -> Result<()> {
    let (name, paths) = inside(paths)?;
    if paths.is_empty() {
        bail!("give a path in {name}");
    }
    let mut session = start(root, &name)?;
    paths
        .iter()
        .map(|text| path(text))
        .try_for_each(|path| act(&mut session, &path).with_context(|| guest(&path)))
}

/// Calls `act` for the only path, or the root directory.
fn on_one(
    root: &Path,
    paths: Vec<String>,
    act: impl FnOnce(&mut Session, &Path) -> Result<()>,
) -> Result<()> {
    let (name, paths) = inside(paths)?;
    let path = match paths.as_slice() {
        [] => path("/"),
        [one] => path(one),
        _ => bail!("only one path is allowed"),
    };
    act(&mut start(root, &name)?, &path).with_context(|| guest(&path))
}

/// Prints attributes as JSON; a link's attributes are its own.
fn show(session: &mut Session, path: &Path) -> Result<()> {
    let attrs = session.lstat(path)?;
    Ok(writeln!(stdout(), "{}", printable::json(&described(session, path, &attrs)?))?)
}

fn described(session: &mut Session, path: &Path, attrs: &Attrs) -> Result<Value> {
    let kind = match () {
        () if attrs.is_directory() => "directory",
        () if attrs.is_link() => "symlink",
        () if attrs.is_file() => "file",
        () => "other",
    };
    let (Some((user, group)), Some(mode), Some((_, changed))) =
        (attrs.owner, attrs.permissions(), attrs.times)
    else {
        // Real hosts read these attributes and have no other source (P§4.4).
        bail!("attributes are missing: {attrs:?}");
    };
    let mut shown = json!({"type": kind, "size": attrs.size, "uid": user, "gid": group,
        "mode": format!("{mode:04o}"), "mtime": changed});
    if attrs.is_link() {
        shown["target"] = json!(session.readlink(path)?.to_string_lossy());
    }
    Ok(shown)
}

fn push(root: &Path, args: PushArgs) -> Result<()> {
    let NewArgs { create_dirs, mode, owner } = args.new;
    let (name, sources, target) = before(root, args.paths)?;
    let session = &mut start(root, &name)?;
    let into_directory = target.ends_with('/')
        || sources.len() > 1
        || session.stat(&path(&target)).is_ok_and(|attrs| attrs.is_directory());
    if create_dirs {
        let target = path(&target);
        let parent = if into_directory { Some(target.as_path()) } else { target.parent() };
        parent.map_or(Ok(()), |parent| tree::make_parents(session, parent))?;
    }
    let mut push = Push { session, mode, owner, unlike: Unlike::default() };
    for source in sources {
        let source = Path::new(&source);
        let to = match (into_directory, source.file_name()) {
            (true, Some(name)) => path(&target).join(name),
            (true, None) | (false, _) => path(&target),
        };
        if source == Path::new("-") {
            if into_directory {
                bail!("to push stdin, name a file in the guest, not a directory");
            }
            push.stream(&mut stdin().lock(), ("-", 0), mode.unwrap_or(0o644), &to)?;
        } else if args.recursive {
            push.tree(&named(source)?, &to)?;
        } else {
            let file = std::fs::File::open(source).with_context(|| local(source))?;
            push.file(file, source, &to)?;
        }
    }
    Ok(())
}

fn named(path: &Path) -> Result<PathBuf> {
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    let (above, name) = match path.file_name() {
        Some(name) => (parent.unwrap_or(Path::new(".")), name),
        None => (path, "".as_ref()),
    };
    let above = above.canonicalize().with_context(|| local(above))?;
    Ok(if name.is_empty() { above } else { above.join(name) })
}

fn pull(root: &Path, mut args: PullArgs) -> Result<()> {
    let target = args.paths.pop().context("a target is needed")?;
    let (name, sources) = inside(args.paths)?;
    if sources.is_empty() {
        bail!("give a path in {name} and a target");
    }
    let session = &mut start(root, &name)?;
    let kind = if sources.len() > 1 { Target::Directory } else { Target::Any };
    let missing = if args.create_dirs { Missing::Make } else { Missing::Refuse };
    for source in sources {
        let from = path(&source);
        if target == "-" {
            tree::pull_file(session, &from, &mut unbuffered(stdout())?)?;
            continue;
        }
        let to = place(&from, Path::new(&target), kind, missing)?;
        if args.recursive {
            Pull { session, unlike: Unlike::default() }.tree(&from, to)?;
        } else {
            tree::pull_one(session, &from, to)?;
        }
    }
    Ok(())
}
