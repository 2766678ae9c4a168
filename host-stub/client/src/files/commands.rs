//! `file`: push, pull and the other commands over the agent's SFTP, with the requests that real
//! hosts send (P§4.4); and `sftp`, the bare stream for another client.

use std::io::{Write, stdin, stdout};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::args::{FileCommand, LinkArgs, MakeArgs, RemoveArgs, before, inside, octal, path};
use super::session::{self, Session, guest, start, unbuffered_stdout};
use super::sftp::wire::Attrs;
use super::{transfer, tree};
use crate::agent::client::connecting;
use crate::common::limits::LISTING;
use crate::common::printable::{self, Shape};
use crate::daemon;
use crate::instance::store;

pub fn run(root: &Path, command: FileCommand) -> Result<()> {
    match command {
        FileCommand::Push(args) => transfer::push(root, args),
        FileCommand::Pull(args) => transfer::pull(root, args),
        FileCommand::Ls(args) => {
            let shape = args.json.into();
            on_one(root, args.paths.paths, |session, path| list(session, path, shape))
        }
        FileCommand::Rm(RemoveArgs { paths, recursive, .. }) => {
            on_each(root, paths.paths, |session, path| {
                if recursive { tree::remove(session, path) } else { session.remove(path) }
            })
        }
        FileCommand::Mkdir(args) => make_directories(root, args),
        FileCommand::Stat(args) => on_each(root, args.paths, show),
        FileCommand::Ln(args) => link(root, args),
        FileCommand::Mv(args) => rename(root, args.paths),
        FileCommand::Chmod(args) => change_mode(root, args.paths),
        FileCommand::Df(args) => on_one(root, args.paths, free),
    }
}

/// Connects stdin and stdout to an SFTP session.
pub fn pipe(root: &Path, name: &str) -> Result<()> {
    let stream = session::connect(&daemon::reach(root, name)?, connecting())?;
    let mut sending = stream.try_clone()?;
    std::thread::spawn(move || {
        // The end of input is passed on; the server then ends the session.
        let _cut = std::io::copy(&mut stdin().lock(), &mut sending);
        let _told = sending.shutdown(std::net::Shutdown::Write);
    });
    let mut receiving = stream;
    std::io::copy(&mut receiving, &mut unbuffered_stdout()?)?;
    Ok(())
}

fn list(session: &mut Session, path: &Path, shape: Shape) -> Result<()> {
    for entry in session.list(path, LISTING)?.entries {
        let at = path.join(&entry.name);
        match shape {
            Shape::Json => {
                let mut shown = described(session, &at, &entry.attrs)?;
                shown["name"] = json!(entry.name.to_string_lossy());
                writeln!(stdout(), "{}", printable::json(&shown))?;
            }
            Shape::Text => {
                let mut line = printable::text(&entry.long);
                if entry.attrs.is_link() {
                    line += &format!(" -> {}", printable::name(session.readlink(&at)?));
                }
                writeln!(stdout(), "{line}")?;
            }
        }
    }
    Ok(())
}

fn make_directories(root: &Path, args: MakeArgs) -> Result<()> {
    let MakeArgs { paths, create_dirs, mode, owner } = args;
    on_each(root, paths.paths, |session, path| {
        if create_dirs {
            tree::make_parents(session, path)?;
        } else {
            session.mkdir(path, &Attrs::default())?;
        }
        let attrs = Attrs {
            mode: Some(mode.unwrap_or(0o755)),
            owner: tree::Owner::from(owner).over(Some((0, 0))),
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
        bail!("a path in {name} is needed");
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
        _ => bail!("one path is enough"),
    };
    act(&mut start(root, &name)?, &path).with_context(|| guest(&path))
}

fn rename(root: &Path, paths: Vec<String>) -> Result<()> {
    let (name, paths) = inside(paths)?;
    let [from, to] = paths.as_slice() else { bail!("two paths are needed, from and to") };
    let (from, to) = (path(from), path(to));
    start(root, &name)?
        .extended("posix-rename@openssh.com", &from, &to)
        .with_context(|| format!("{} to {}", guest(&from), printable::name(&to)))
}

/// Runs `chmod NAME MODE PATH ...` or `chmod MODE NAME/PATH ...`.
fn change_mode(root: &Path, mut words: Vec<String>) -> Result<()> {
    if words.len() < 2 {
        bail!("a mode and a path are needed");
    }
    let mode_is_first = !store::exists(root, &words[0]) && octal(&words[0]).is_ok();
    let mode = octal(&words.remove(usize::from(!mode_is_first)))?;
    let attrs = Attrs { mode: Some(mode), ..Attrs::default() };
    on_each(root, words, |session, path| session.setstat(path, &attrs))
}

fn link(root: &Path, args: LinkArgs) -> Result<()> {
    let (name, targets, link) = before(root, args.paths)?;
    let [target] = targets.as_slice() else { bail!("a target and a path are needed") };
    let mut session = start(root, &name)?;
    let link = path(&link);
    let made = if args.symbolic {
        // A link's text stays as given, also if it is relative.
        session.symlink(Path::new(target), &link)
    } else {
        let target = target.strip_prefix(&format!("{name}/")).unwrap_or(target);
        session.extended("hardlink@openssh.com", &path(target), &link)
    };
    made.with_context(|| guest(&link))
}

/// Prints attributes as JSON; those of a link are its own.
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

fn free(session: &mut Session, path: &Path) -> Result<()> {
    let [_, unit, blocks, free, available, files, free_files, ..] = session.statvfs(path)?;
    // A guest may return any number.
    let bytes = |blocks: u64| unit.saturating_mul(blocks);
    let shown = json!({"size": bytes(blocks), "free": bytes(free), "available": bytes(available),
        "files": files, "free_files": free_files});
    Ok(writeln!(stdout(), "{}", printable::json(&shown))?)
}
