//! Files by SFTP (P§4.4), as the servers and sshfs use it.

mod attributes;
mod files;
mod names;
mod session;

use session::session;

use crate::conform::agent::Agent;
use crate::conform::sftp::{NO_FILE, Sftp, UNSUPPORTED, flag, kind, of};
use crate::conform::{Check, Claim, Group, hold, same};

const GROUP: Group = Group("Files", "P§4.4");

pub(super) const ALL: &[Check] = &[
    GROUP.is("the upgrade is 101 `Upgrade: sftp`, and nothing before it is asked", upgrade),
    GROUP.is("another upgrade is 400", wrong_upgrade),
    GROUP.is("it is version 3, with hardlink, posix-rename and statvfs", version),
    GROUP.is("REALPATH `.` is the agent's directory (LXD), or `/` (Incus)", realpath_dot),
    GROUP.is("REALPATH cleans a path, and needs no file", realpath),
    GROUP.is("STAT follows links, LSTAT does not", attributes::stat),
    GROUP.is("attributes have size, owner, mode and times", attributes::told),
    GROUP.is("what is not there is status 2", not_there),
    GROUP.is("READ gives bytes from any place, then the end", files::read),
    GROUP.is("a file of 1 MiB goes there and back, asked for in a pipeline", files::large),
    GROUP.is("WRITE in the middle keeps the rest", files::write_middle),
    GROUP.is("WRITE beyond the end leaves a hole", files::sparse),
    GROUP.is("TRUNCATE empties, EXCLUSIVE refuses what is there", files::create_flags),
    GROUP.is("the place counts even if APPEND is given", files::append),
    GROUP.is("OPEN makes a file with the mode that is given", files::open_mode),
    GROUP.is("another user's file in a sticky directory is refused with the reason", files::sticky),
    GROUP.is("SETSTAT changes mode, owner, times or size", attributes::setstat),
    GROUP.is("SETSTAT changes all of these at once", attributes::setstat_all),
    GROUP.is("FSETSTAT does, on an open file", attributes::fsetstat),
    GROUP.is("MKDIR, RMDIR and REMOVE do what they say", names::directories),
    GROUP.is("RMDIR leaves a directory that is not empty", names::rmdir_full),
    GROUP.is("READDIR lists names, long names and attributes", names::readdir),
    GROUP.is("READDIR lists 500 files", names::readdir_many),
    GROUP.is("SYMLINK takes target, then link; READLINK reads it", names::symlink),
    GROUP.is("RENAME moves a file", names::rename),
    GROUP.is("`posix-rename@openssh.com` replaces a file", names::posix_rename),
    GROUP.is("`hardlink@openssh.com` makes a second name", names::hardlink),
    GROUP.is("`statvfs@openssh.com` tells the file system's sizes", attributes::statvfs),
    GROUP.is("`fsync@openssh.com` is there", files::fsync),
    GROUP.is("an extension that nobody knows is status 8", unknown_extension),
    GROUP.is("names need not be UTF-8", names::not_utf8),
    GROUP.is("a closed handle is refused", files::closed_handle),
    GROUP.is("files belong to root, whoever asked last", root),
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
        same("it", sftp.status(kind, &of("/no/such"))?, NO_FILE)?;
    }
    let body = of("/no/such").u32(flag::READ).u32(0);
    same("OPEN", sftp.status(kind::OPEN, &body)?, NO_FILE)
}

fn unknown_extension(agent: &Agent) -> Claim {
    let mut sftp = Sftp::open(agent)?;
    let body = of("nothing@example.org").bytes("x");
    same("it", sftp.status(kind::EXTENDED, &body)?, UNSUPPORTED)?;
    hold("the session is over", sftp.attrs(kind::STAT, "/").is_ok())
}

fn root(agent: &Agent) -> Claim {
    let (mut sftp, dir) = session(agent, "root")?;
    sftp.put(format!("{dir}/file"), b"x")?;
    same("owner and mode", agent.guest(&format!("stat -c '%u %g %a' {dir}/file"))?, "0 0 644")
}
