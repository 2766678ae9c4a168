//! `file`: push, pull and the rest over the agent's SFTP, with the requests that real hosts send
//! (P§4.4); and `sftp`, the bare stream for somebody else's client.

use std::io::{Write, stdin, stdout};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::agent_client;
use crate::args::{Args, flag, next, none_left, option};
use crate::file_tree::{self, Owner};
use crate::sftp_client::Client;
use crate::sftp_wire::Attrs;
use crate::upgrade::upgrade;

/// A session with an agent.
pub(crate) type Session = Client<UnixStream>;

/// Runs one of the commands.
pub(crate) fn run(root: &Path, mut args: Args) -> Result<()> {
    let command = next(&mut args)?;
    let options = Options::take(&mut args)?;
    if let Some(unknown) = args.iter().find(|arg| arg.starts_with('-') && *arg != "-") {
        bail!("unknown option {unknown}; see --help");
    }
    let instance = next(&mut args)?;
    let arity = match command.as_str() {
        "push" | "pull" => 2..=usize::MAX,
        "rm" | "mkdir" | "stat" | "readlink" | "realpath" => 1..=usize::MAX,
        "ls" | "df" => 0..=1,
        "ln" | "mv" => 2..=2,
        "chmod" => 2..=usize::MAX,
        other => bail!("unknown command file {other}; see --help"),
    };
    if !arity.contains(&args.len()) {
        bail!("wrong number of arguments; see --help");
    }
    let mut session = start(root, &instance)?;
    match command.as_str() {
        "push" => push(&mut session, &options, args),
        "pull" => pull(&mut session, &options, args),
        "ls" => list(&mut session, &path(args.pop_front().as_deref().unwrap_or("/"))),
        "ln" => link(&mut session, &options, args),
        "chmod" => {
            let attrs = Attrs { mode: Some(octal(&next(&mut args)?)?), ..Attrs::default() };
            args.iter()
                .try_for_each(|name| session.setstat(&path(name), &attrs).context(name.clone()))
        }
        "mv" => {
            let (from, to) = (next(&mut args)?, next(&mut args)?);
            session.extended("posix-rename@openssh.com", &path(&from), &path(&to))
        }
        "df" => free(&mut session, &path(args.pop_front().as_deref().unwrap_or("/"))),
        _ => args
            .iter()
            .try_for_each(|name| one(&mut session, &command, &options, name).context(name.clone())),
    }
}

/// Commands that do the same to each path.
fn one(session: &mut Session, command: &str, options: &Options, name: &str) -> Result<()> {
    let path = path(name);
    match command {
        "rm" if options.recursive => file_tree::remove(session, &path),
        "rm" => session.remove(&path),
        "mkdir" => make_directory(session, options, &path),
        "readlink" => Ok(writeln!(stdout(), "{}", session.readlink(&path)?.display())?),
        "realpath" => Ok(writeln!(stdout(), "{}", session.realpath(&path)?.display())?),
        _ => show(session, &path),
    }
}

/// `sftp`: stdin and stdout are the stream.
pub(crate) fn pipe(root: &Path, mut args: Args) -> Result<()> {
    let name = next(&mut args)?;
    none_left(&args)?;
    let instance = agent_client::reach(root, &name)?;
    let stream = upgrade(root, &instance, ("GET", "/1.0/sftp"), "sftp", b"")?;
    let mut sending = stream.try_clone()?;
    std::thread::spawn(move || {
        // The end of our input is told; the server ends then.
        let _cut = std::io::copy(&mut stdin().lock(), &mut sending);
        let _told = sending.shutdown(std::net::Shutdown::Write);
    });
    let mut receiving = stream;
    // Unbuffered: std's stdout would wait for a newline.
    let mut out = std::fs::File::from(std::os::fd::AsFd::as_fd(&stdout()).try_clone_to_owned()?);
    std::io::copy(&mut receiving, &mut out)?;
    Ok(())
}

fn start(root: &Path, name: &str) -> Result<Session> {
    let instance = agent_client::reach(root, name)?;
    Client::start(upgrade(root, &instance, ("GET", "/1.0/sftp"), "sftp", b"")?)
}

/// What may be said besides.
#[derive(Clone, Debug, Default)]
struct Options {
    mode: Option<u32>,
    owner: Owner,
    /// Directories with all that is in them.
    recursive: bool,
    /// Directories above too, or a symbolic link.
    special: Special,
}

/// What a command does in its special way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Special {
    #[default]
    No,
    Parents,
    Symbolic,
}

impl Options {
    fn take(args: &mut Args) -> Result<Self> {
        let number = |text: Option<String>| -> Result<Option<u32>> {
            text.map(|text| text.parse().with_context(|| format!("{text} is no id"))).transpose()
        };
        Ok(Self {
            mode: option(args, "--mode").map(|mode| octal(&mode)).transpose()?,
            owner: Owner {
                user: number(option(args, "--uid"))?,
                group: number(option(args, "--gid"))?,
            },
            recursive: flag(args, "-r") || flag(args, "-rf"),
            special: match (flag(args, "-p"), flag(args, "-s")) {
                (true, _) => Special::Parents,
                (false, true) => Special::Symbolic,
                (false, false) => Special::No,
            },
        })
    }
}

fn octal(text: &str) -> Result<u32> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.with_context(|| format!("{text} is no mode"))
}

/// A path in the guest; as with real hosts, all are absolute.
fn path(text: &str) -> PathBuf {
    Path::new("/").join(text)
}

fn push(session: &mut Session, options: &Options, mut args: Args) -> Result<()> {
    let target = args.pop_back().context("no target")?;
    let into_directory = target.ends_with('/')
        || args.len() > 1
        || session.stat(&path(&target)).is_ok_and(|attrs| attrs.is_directory());
    if options.special == Special::Parents {
        let target = path(&target);
        let parent = if into_directory { Some(target.as_path()) } else { target.parent() };
        parent.map_or(Ok(()), |parent| file_tree::make_parents(session, parent))?;
    }
    for source in args {
        let source = Path::new(&source);
        let to = match (into_directory, source.file_name()) {
            (true, Some(name)) => path(&target).join(name),
            (true, None) => path(&target),
            (false, _) => path(&target),
        };
        let shown = || source.display().to_string();
        if source == Path::new("-") {
            let to = if into_directory { bail!("stdin needs a file's name") } else { to };
            let mode = options.mode.unwrap_or(0o644);
            file_tree::push_file(session, &mut stdin().lock(), ("-", 0), &to, mode, options.owner)?;
        } else if options.recursive {
            file_tree::push(session, source, &to, options.mode, options.owner)
                .with_context(shown)?;
        } else {
            file_tree::push_one(session, source, &to, options.mode, options.owner)
                .with_context(shown)?;
        }
    }
    Ok(())
}

fn pull(session: &mut Session, options: &Options, mut args: Args) -> Result<()> {
    let target = args.pop_back().context("no target")?;
    let into_directory = target.ends_with('/') || args.len() > 1 || Path::new(&target).is_dir();
    if options.special == Special::Parents && into_directory {
        std::fs::create_dir_all(&target).with_context(|| target.clone())?;
    }
    for source in args {
        let from = path(&source);
        if target == "-" {
            let mut out =
                std::fs::File::from(std::os::fd::AsFd::as_fd(&stdout()).try_clone_to_owned()?);
            file_tree::pull_file(session, &from, &mut out).context(source)?;
            continue;
        }
        let target = Path::new(&target);
        let to = match (into_directory, from.file_name()) {
            (true, Some(name)) => target.join(name),
            _ => target.to_owned(),
        };
        if options.recursive {
            file_tree::pull(session, &from, &to).context(source)?;
        } else {
            file_tree::pull_one(session, &from, &to).context(source)?;
        }
    }
    Ok(())
}

fn list(session: &mut Session, path: &Path) -> Result<()> {
    for entry in session.list(path)? {
        let mut line = entry.long.clone();
        if entry.attrs.is_link() {
            let target = session.readlink(&path.join(&entry.name))?;
            line += &format!(" -> {}", target.display());
        }
        writeln!(stdout(), "{line}")?;
    }
    Ok(())
}

fn make_directory(session: &mut Session, options: &Options, path: &Path) -> Result<()> {
    if options.special == Special::Parents {
        file_tree::make_parents(session, path)?;
    } else {
        session.mkdir(path, &Attrs::default())?;
    }
    let attrs = Attrs {
        mode: Some(options.mode.unwrap_or(0o755)),
        owner: options.owner.over(Some((0, 0))),
        ..Attrs::default()
    };
    session.setstat(path, &attrs)
}

fn link(session: &mut Session, options: &Options, mut args: Args) -> Result<()> {
    let (target, link) = (next(&mut args)?, next(&mut args)?);
    if options.special == Special::Symbolic {
        // What a link says is not ours to make absolute.
        return session.symlink(Path::new(&target), &path(&link));
    }
    session.extended("hardlink@openssh.com", &path(&target), &path(&link))
}

/// Attributes, the thing's own first, as JSON.
fn show(session: &mut Session, path: &Path) -> Result<()> {
    let attrs = session.lstat(path)?;
    let kind = match () {
        () if attrs.is_directory() => "directory",
        () if attrs.is_link() => "symlink",
        () if attrs.is_file() => "file",
        () => "other",
    };
    let (Some((user, group)), Some(mode), Some((_, changed))) =
        (attrs.owner, attrs.permissions(), attrs.times)
    else {
        // A real host shows these, and has nothing else to take them from (P§4.4).
        bail!("attributes are missing: {attrs:?}");
    };
    let mut shown = json!({"type": kind, "size": attrs.size, "uid": user, "gid": group,
        "mode": format!("{mode:04o}"), "mtime": changed});
    if attrs.is_link() {
        shown["target"] = json!(session.readlink(path)?.to_string_lossy());
    }
    Ok(writeln!(stdout(), "{shown}")?)
}

fn free(session: &mut Session, path: &Path) -> Result<()> {
    let [_, unit, blocks, free, available, files, free_files, ..] = session.statvfs(path)?;
    let shown = json!({"size": unit * blocks, "free": unit * free, "available": unit * available,
        "files": files, "free_files": free_files});
    Ok(writeln!(stdout(), "{shown}")?)
}
