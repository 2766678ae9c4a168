//! Files by SFTP (P§4.4), as the servers and sshfs use it.

mod attributes;
mod files;
mod names;
mod session;

use session::session;

use crate::conform::agent::Agent;
use crate::conform::sftp::{Body, NO_FILE, Sftp, UNSUPPORTED, flag, kind};
use crate::conform::{Check, Claim, hold, same};

const GROUP: &str = "Files";

pub(super) const ALL: &[Check] = &[
    Check::new(
        GROUP,
        "P§4.4",
        "the upgrade is 101 `Upgrade: sftp`, and nothing before it is asked",
        upgrade,
    ),
    Check::new(GROUP, "P§4.4", "another upgrade is 400", wrong_upgrade),
    Check::new(GROUP, "P§4.4", "it is version 3, with hardlink, posix-rename and statvfs", version),
    Check::new(
        GROUP,
        "P§4.4",
        "REALPATH `.` is the agent's directory (LXD), or `/` (Incus)",
        realpath_dot,
    ),
    Check::new(GROUP, "P§4.4", "REALPATH cleans a path, and needs no file", realpath),
    Check::new(GROUP, "P§4.4", "STAT follows links, LSTAT does not", attributes::stat),
    Check::new(GROUP, "P§4.4", "attributes have size, owner, mode and times", attributes::told),
    Check::new(GROUP, "P§4.4", "what is not there is status 2", not_there),
    Check::new(GROUP, "P§4.4", "READ gives bytes from any place, then the end", files::read),
    Check::new(
        GROUP,
        "P§4.4",
        "a file of 1 MiB goes there and back, asked for in a pipeline",
        files::large,
    ),
    Check::new(GROUP, "P§4.4", "WRITE in the middle keeps the rest", files::write_middle),
    Check::new(GROUP, "P§4.4", "WRITE beyond the end leaves a hole", files::sparse),
    Check::new(
        GROUP,
        "P§4.4",
        "TRUNCATE empties, EXCLUSIVE refuses what is there",
        files::create_flags,
    ),
    Check::new(GROUP, "P§4.4", "the place counts even if APPEND is given", files::append),
    Check::new(GROUP, "P§4.4", "OPEN makes a file with the mode that is given", files::open_mode),
    Check::new(
        GROUP,
        "P§4.4",
        "another user's file in a sticky directory is refused with the reason",
        files::sticky,
    ),
    Check::new(GROUP, "P§4.4", "SETSTAT changes mode, owner, times or size", attributes::setstat),
    Check::new(GROUP, "P§4.4", "SETSTAT changes all of these at once", attributes::setstat_all),
    Check::new(GROUP, "P§4.4", "FSETSTAT does, on an open file", attributes::fsetstat),
    Check::new(GROUP, "P§4.4", "MKDIR, RMDIR and REMOVE do what they say", names::directories),
    Check::new(GROUP, "P§4.4", "RMDIR leaves a directory that is not empty", names::rmdir_full),
    Check::new(GROUP, "P§4.4", "READDIR lists names, long names and attributes", names::readdir),
    Check::new(GROUP, "P§4.4", "READDIR lists 500 files", names::readdir_many),
    Check::new(
        GROUP,
        "P§4.4",
        "SYMLINK takes target, then link; READLINK reads it",
        names::symlink,
    ),
    Check::new(GROUP, "P§4.4", "RENAME moves a file", names::rename),
    Check::new(GROUP, "P§4.4", "`posix-rename@openssh.com` replaces a file", names::posix_rename),
    Check::new(GROUP, "P§4.4", "`hardlink@openssh.com` makes a second name", names::hardlink),
    Check::new(
        GROUP,
        "P§4.4",
        "`statvfs@openssh.com` tells the file system's sizes",
        attributes::statvfs,
    ),
    Check::new(GROUP, "P§4.4", "`fsync@openssh.com` is there", files::fsync),
    Check::new(GROUP, "P§4.4", "an extension that nobody knows is status 8", unknown_extension),
    Check::new(GROUP, "P§4.4", "names need not be UTF-8", names::not_utf8),
    Check::new(GROUP, "P§4.4", "a closed handle is refused", files::closed_handle),
    Check::new(GROUP, "P§4.4", "files belong to root, whoever asked last", root),
];

fn upgrade(agent: &Agent) -> Claim {
    let (answer, _wire) = Sftp::upgrade(agent, "sftp")?;
    same("status", answer.short(), "101")?;
    same("Upgrade", answer.field("upgrade"), "sftp")?;
    same("Connection", answer.field("connection"), "Upgrade")
}

fn wrong_upgrade(agent: &Agent) -> Claim {
    same("status", Sftp::upgrade(agent, "websocket")?.0.status, 400)?;
    same("status without one", agent.ask("GET", "/1.0/sftp", "")?.status, 400)
}

fn version(agent: &Agent) -> Claim {
    let sftp = Sftp::open(agent)?;
    same("version", sftp.version, 3)?;
    let wanted = [
        ("hardlink@openssh.com", "1"),
        ("posix-rename@openssh.com", "1"),
        ("statvfs@openssh.com", "2"),
    ];
    for (name, version) in wanted {
        let has = sftp.extensions.iter().any(|(known, at)| known == name && at == version);
        hold(format!("no {name} {version}"), has)?;
    }
    Ok(())
}

fn realpath_dot(agent: &Agent) -> Claim {
    let seen = Sftp::open(agent)?.name(kind::REALPATH, ".")?;
    let cwd = agent.guest("readlink /proc/$(cat /run/agent.pid)/cwd")?;
    let wanted = agent.column.pick(cwd, "/".into());
    same("it", seen, wanted)
}

fn realpath(agent: &Agent) -> Claim {
    let mut sftp = Sftp::open(agent)?;
    same("it", sftp.name(kind::REALPATH, "/proc//./sys/../../tmp/no-such")?, "/tmp/no-such")
}

fn not_there(agent: &Agent) -> Claim {
    let mut sftp = Sftp::open(agent)?;
    for kind in [kind::STAT, kind::LSTAT, kind::OPENDIR, kind::REMOVE, kind::READLINK] {
        same("it", sftp.status(kind, &Body::of("/no/such"))?, NO_FILE)?;
    }
    let body = Body::of("/no/such").u32(flag::READ).u32(0);
    same("OPEN", sftp.status(kind::OPEN, &body)?, NO_FILE)
}

fn unknown_extension(agent: &Agent) -> Claim {
    let mut sftp = Sftp::open(agent)?;
    let body = Body::of("nothing@example.org").str("x");
    same("it", sftp.status(kind::EXTENDED, &body)?, UNSUPPORTED)?;
    hold("the session is over", sftp.attrs(kind::STAT, "/").is_ok())
}

fn root(agent: &Agent) -> Claim {
    let (mut sftp, dir) = session(agent, "root")?;
    sftp.put(format!("{dir}/file"), b"x")?;
    same("owner and mode", agent.guest(&format!("stat -c '%u %g %a' {dir}/file"))?, "0 0 644")
}
