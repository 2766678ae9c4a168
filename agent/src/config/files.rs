//! Finds the host's config files (P§1.2) in a directory, a share or a disk, and reads them once.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use mote_core::time::Uptime;
use rustix::io::Errno;

use crate::built;
pub(crate) use crate::config::contents::ConfigFiles;
use crate::config::known_host::{ADDRESS, keep_in};
use crate::config::share::{Source, SourceError};
use crate::guest_path::is_roots_alone;
use crate::options::Options;
use crate::runtime::{log, log::frozen, now, read_if_there, read_regular, write_lasting};
use crate::sys::file::{self, OFlags};
use crate::system::devices::{self, entries};
use crate::system::modules;

/// Maximum size of a config file, in bytes; a certificate chain has a few thousand.
const MAX_HOST_FILE: u64 = 64 * 1024;
/// Maximum size of a file in `nics`, in bytes; usually about 100.
const LONGEST_NIC: u64 = 4096;
/// Maximum number of files in `nics`; a VM has a few dozen PCI slots.
const MOST_NICS: usize = 64;
pub(crate) const NAMES: [&str; 3] = ["agent.crt", "agent.key", "server.crt"];
/// [`NAMES`] for messages.
const FILES: &str = "agent.crt, agent.key, server.crt";
/// Advice if files are missing or do not match.
const TOGETHER: &str = "copy all three files from one share";
/// Why the agent ignores a directory that no option names.
const FOREIGN: &str = "not used: users other than root can change it or a file in it";
const NOTHING: &str = "this VM has no disk \"incus-agent\" and no share \"config\" (virtiofs, 9p): \
                       add one, or name a directory with --config-dir";
/// Where the set-up scripts of the Go agents copy the files (P§1.5), relative to the root.
const COPIES: [&str; 2] = ["run/lxd_agent", "run/incus_agent"];

/// How long to wait for the share, whose device may be late at boot, before using stored files.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Tries each source in turn, or only the directory given on the command line. Calls `visit` with
/// the directory while it is mounted, because large templates are copied straight from it. If
/// `visit` fails, tries the next source.
/// Errors: what is wrong with each source found, or why no source was found, and what to do.
pub(crate) fn find(
    options: &Options,
    visit: &mut dyn FnMut(&Path, &ConfigFiles) -> Result<(), String>,
) -> Result<ConfigFiles, String> {
    let mut read = |directory: &Path, secrets: Option<&Path>, name: &str| {
        let files = read(directory, secrets, name)?;
        visit(directory, &files)
            .map_err(|why| SourceError::Bad(format!("{name}: {why}: {TOGETHER}")))?;
        Ok(files)
    };
    let secrets = options.secrets_dir.as_deref();
    let found =
        find_by(options, &mut |directory: &Path, name: &str| read(directory, secrets, name));
    let Some(kept) = options.remember.as_deref().filter(|_| built::REMEMBER) else { return found };
    match &found {
        Ok(files) if options.is_agent() => keep(kept, files),
        Ok(_) => {}
        Err(_) if is_time(options) && !is_foreign(kept) => {
            if let Ok(files) = read(kept, None, &kept.display().to_string()) {
                return Ok(files);
            }
        }
        Err(_) => {}
    }
    found
}

/// Reads the files of one directory; the second argument names the source.
type Read<'a> = &'a mut dyn FnMut(&Path, &str) -> Result<ConfigFiles, SourceError>;

/// Returns the directories to try before any share.
pub(crate) fn directories(options: &Options) -> Vec<PathBuf> {
    let given: Vec<_> = options.config_dir.iter().chain(&options.secrets_dir).cloned().collect();
    if !given.is_empty() {
        return given;
    }
    let copies = COPIES.iter().map(|copy| options.root.join(copy));
    [PathBuf::from(".")].into_iter().chain(copies).collect()
}

fn find_by(options: &Options, read: Read<'_>) -> Result<ConfigFiles, String> {
    // Incus' agent reads everything except the certificates from its working directory (P§1.1).
    let secrets = options.secrets_dir.as_ref().map(|secrets| (Path::new("."), secrets));
    if let Some((directory, name)) =
        options.config_dir.as_ref().map(|directory| (directory.as_path(), directory)).or(secrets)
    {
        let name = name.display().to_string();
        if options.config_dir.is_none() && !is_roots_alone(directory) {
            return Err(format!("the working directory: {FOREIGN}"));
        }
        return read(directory, &name).map_err(|why| match why {
            SourceError::Absent => format!("{name} has none of {FILES}: copy them there"),
            SourceError::Bad(why) => why,
        });
    }
    let mut bad = Vec::new();
    let mut note = |found| match found {
        Err(SourceError::Bad(why)) => {
            bad.push(why);
            None
        }
        found => found.ok(),
    };
    for directory in directories(options) {
        let name = match directory.to_str() {
            Some(".") => "the working directory".to_owned(),
            _ => directory.display().to_string(),
        };
        let found = if is_foreign(&directory) {
            Err(SourceError::Bad(format!("{name}: {FOREIGN}")))
        } else {
            read(&directory, &name)
        };
        if let Some(files) = note(found) {
            return Ok(files);
        }
    }
    modules::prepare(&options.root, &[]);
    for source in Source::in_order(&options.root) {
        let found = source.mounted(options).and_then(|_mounted| {
            read(Path::new("."), source.name()).map_err(|why| match why {
                SourceError::Absent => {
                    SourceError::Bad(format!("{} has none of {FILES}", source.name()))
                }
                SourceError::Bad(_) => why,
            })
        });
        if let Some(files) = note(found) {
            return Ok(files);
        }
    }
    if !bad.is_empty() {
        return Err(bad.join("; "));
    }
    Err(devices::unmounted(&options.root).unwrap_or(NOTHING).to_owned())
}

/// Stores the host's files in the guest (`--remember`), for a start without the share:
/// `migration.stateful` removes virtiofs permanently. Skips a frozen disk, which would block the
/// start; the next start stores them.
fn keep(directory: &Path, files: &ConfigFiles) {
    if frozen::is_frozen() {
        return;
    }
    // The umask makes directory and files accessible to root only.
    let _there = file::mkdir(directory);
    let contents = [&files.agent_crt, &files.agent_key, &files.server_crt];
    for (name, bytes) in NAMES.into_iter().zip(contents) {
        keep_in(directory, name, bytes, write_lasting);
    }
    if let Some(address) = &files.agent_conf {
        keep_in(directory, ADDRESS, address, write_lasting);
    }
}

/// Returns whether the wait for the share has ended.
pub(crate) fn is_time(options: &Options) -> bool {
    static FIRST: OnceLock<Uptime> = OnceLock::new();
    let first = *FIRST.get_or_init(now);
    !options.waits() || now() - first >= TIMEOUT
}

/// Returns whether users other than root could have created the files.
fn is_foreign(directory: &Path) -> bool {
    let (mut found, mut trusted) = (false, is_roots_alone(directory));
    for name in NAMES {
        let path = directory.join(name);
        if file::lstat(&path).is_ok() {
            found = true;
            trusted &= is_roots_alone(&path);
        }
    }
    found && !trusted
}

fn read(directory: &Path, secrets: Option<&Path>, name: &str) -> Result<ConfigFiles, SourceError> {
    let certificates = secrets.unwrap_or(directory);
    let file = |file: &str| {
        read_regular(&certificates.join(file), MAX_HOST_FILE)
            .map_err(|error| SourceError::Bad(format!("{name}: {file}: {error}: {TOGETHER}")))
    };
    if !NAMES.iter().any(|name| file::lstat(&certificates.join(name)).is_ok()) {
        // There is no such file, or the directory is unreadable.
        return Err(match file::open(certificates, OFlags::DIRECTORY) {
            Ok(_) | Err(Errno::NOENT) => SourceError::Absent,
            Err(error) => SourceError::Bad(format!("{name}: {error}")),
        });
    }
    let maybe = |file: &str| {
        read_if_there(&directory.join(file), MAX_HOST_FILE).unwrap_or_else(|error| {
            log::warn(format_args!("{name}: {file}: {error}"));
            None
        })
    };
    Ok(ConfigFiles {
        agent_crt: file("agent.crt")?,
        agent_key: file("agent.key")?,
        server_crt: file("server.crt")?,
        agent_conf: maybe("agent.conf"),
        mounts: maybe("agent-mounts.json"),
        nics: nics(&directory.join("nics")),
        from: name.to_owned(),
    })
}

fn nics(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for path in entries(directory).into_iter().take(MOST_NICS) {
        let Some(name) = path.file_name().and_then(OsStr::to_str) else { continue };
        if !name.ends_with(".json") {
            continue;
        }
        match read_if_there(&path, LONGEST_NIC) {
            Ok(None) => {}
            Ok(Some(bytes)) => {
                let at = files.partition_point(|(other, _): &(String, _)| other.as_str() < name);
                files.insert(at, (name.to_owned(), bytes));
            }
            Err(error) => log::warn(format_args!("nics/{name}: {error}")),
        }
    }
    files
}

#[cfg(test)]
mod tests;
