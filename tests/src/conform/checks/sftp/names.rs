//! Names: directories, links, renames.

use super::session::session;
use crate::conform::agent::Agent;
use crate::conform::sftp::{FAILURE, NO_FILE, kind, of};
use crate::conform::{Claim, hold, same};

pub(super) fn directories(agent: &Agent) -> Claim {
    let (mut sftp, dir) = session(agent, "directories")?;
    let path = format!("{dir}/sub");
    sftp.ok("mkdir", kind::MKDIR, &of(&path).u32(0))?;
    let _is = agent.guest(&format!("test -d {path}"))?;
    sftp.put(format!("{path}/file"), b"x")?;
    sftp.ok("remove", kind::REMOVE, &of(format!("{path}/file")))?;
    sftp.ok("rmdir", kind::RMDIR, &of(&path))?;
    same("what is left", agent.guest(&format!("ls {dir}"))?, "")?;
    let again = sftp.status(kind::RMDIR, &of(&path))?;
    same("RMDIR of what is not there", again, NO_FILE)
}

pub(super) fn rmdir_full(agent: &Agent) -> Claim {
    let (mut sftp, dir) = session(agent, "full")?;
    sftp.put(format!("{dir}/file"), b"x")?;
    same("it", sftp.status(kind::RMDIR, &of(&dir))?, FAILURE)?;
    let _is = agent.guest(&format!("test -e {dir}/file"))?;
    Ok(())
}

pub(super) fn readdir(agent: &Agent) -> Claim {
    let (mut sftp, dir) = session(agent, "readdir")?;
    let _made = agent.guest(&format!(
        "cd {dir}; echo 123 >file; mkdir sub; ln -s nowhere link; touch .hidden"
    ))?;
    let mut all = sftp.list(&dir)?;
    all.sort_by(|one, other| one.0.cmp(&other.0));
    let names: Vec<_> = all.iter().map(|(name, ..)| String::from_utf8_lossy(name)).collect();
    same("the list", names.join(" "), ".hidden file link sub")?;
    let modes: Vec<_> =
        all.iter().map(|(.., attrs)| format!("{:o}", attrs.mode.unwrap_or(0))).collect();
    same("the modes", modes.join(" "), "100644 100644 120777 40755")?;
    same("the size", all[1].2.size.unwrap_or(0), 4)?;
    let long = &all[3].1;
    hold(
        "the long name is none of ls -l",
        long.starts_with(b"drwxr-xr-x") && long.ends_with(b" sub"),
    )
}

pub(super) fn readdir_many(agent: &Agent) -> Claim {
    let (mut sftp, dir) = session(agent, "many")?;
    let _made = agent
        .guest(&format!("cd {dir}; for n in $(seq 500); do : >a-long-name-for-a-file-$n; done"))?;
    let mut names: Vec<_> = sftp.list(&dir)?.into_iter().map(|(name, ..)| name).collect();
    names.sort_unstable();
    names.dedup();
    same("the number", names.len(), 500)
}

pub(super) fn symlink(agent: &Agent) -> Claim {
    let (mut sftp, dir) = session(agent, "symlink")?;
    sftp.ok("symlink", kind::SYMLINK, &of("the/target").bytes(format!("{dir}/link")))?;
    same("the link", agent.guest(&format!("readlink {dir}/link"))?, "the/target")?;
    same("READLINK", sftp.name(kind::READLINK, format!("{dir}/link"))?, "the/target")
}

pub(super) fn rename(agent: &Agent) -> Claim {
    let (mut sftp, dir) = session(agent, "rename")?;
    sftp.put(format!("{dir}/a"), b"a")?;
    sftp.ok("rename", kind::RENAME, &of(format!("{dir}/a")).bytes(format!("{dir}/b")))?;
    same("what is there", agent.guest(&format!("cd {dir}; ls; cat b"))?, "b\na")
}

pub(super) fn posix_rename(agent: &Agent) -> Claim {
    let (mut sftp, dir) = session(agent, "posix")?;
    sftp.put(format!("{dir}/a"), b"a")?;
    sftp.put(format!("{dir}/b"), b"b")?;
    let body = of("posix-rename@openssh.com").bytes(format!("{dir}/a")).bytes(format!("{dir}/b"));
    sftp.ok("posix-rename", kind::EXTENDED, &body)?;
    same("what is there", agent.guest(&format!("cd {dir}; ls; cat b"))?, "b\na")
}

pub(super) fn hardlink(agent: &Agent) -> Claim {
    let (mut sftp, dir) = session(agent, "hardlink")?;
    sftp.put(format!("{dir}/a"), b"a")?;
    let body = of("hardlink@openssh.com").bytes(format!("{dir}/a")).bytes(format!("{dir}/b"));
    sftp.ok("hardlink", kind::EXTENDED, &body)?;
    same("links", agent.guest(&format!("stat -c %h {dir}/b"))?, "2")
}

pub(super) fn not_utf8(agent: &Agent) -> Claim {
    let (mut sftp, dir) = session(agent, "bytes")?;
    let mut path = format!("{dir}/").into_bytes();
    path.extend(b"\xff\xfe name");
    sftp.put(&path, b"x")?;
    let names: Vec<_> = sftp.list(&dir)?.into_iter().map(|(name, ..)| name).collect();
    hold("it is listed otherwise", names == [b"\xff\xfe name".to_vec()])?;
    let _attrs = sftp.attrs(kind::STAT, &path)?;
    sftp.ok("remove", kind::REMOVE, &of(&path)).map_err(Into::into)
}
