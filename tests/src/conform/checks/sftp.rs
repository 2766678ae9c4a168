//! Files by SFTP (P§4.4), as the servers and sshfs use it.

use crate::conform::prelude::*;
use crate::conform::sftp::{
    Attrs, EOF, FAILURE, NO_FILE, Reply, Sftp, UNSUPPORTED, flag, kind, of,
};

const GROUP: Group = Group::new("Files", "P§4.4");

pub(super) const ALL: &[Check] = &[
    GROUP.is("the upgrade is 101 `Upgrade: sftp`, and nothing before it is asked", upgrade),
    GROUP.is("another upgrade is 400", |agent| {
        Sftp::upgrade(agent, "websocket")?.0.is(400)?;
        same("status without one", agent.ask("GET", "/1.0/sftp", "")?.status, 400)
    }),
    GROUP.is("it is version 3, with hardlink, posix-rename and statvfs", |agent| {
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
    }),
    GROUP.is("REALPATH `.` is the agent's directory (LXD), or `/` (Incus)", |agent| {
        let seen = Sftp::open(agent)?.name(kind::REALPATH, ".")?;
        let cwd = agent.guest("readlink /proc/$(cat /run/agent.pid)/cwd")?;
        let wanted = agent.column.pick(cwd, "/".into());
        same("it", seen, wanted)
    }),
    GROUP.is("REALPATH cleans a path, and needs no file", |agent| {
        let mut sftp = Sftp::open(agent)?;
        same("it", sftp.name(kind::REALPATH, "/proc//./sys/../../tmp/no-such")?, "/tmp/no-such")
    }),
    GROUP.is("STAT follows links, LSTAT does not", |agent| {
        let (mut sftp, dir, _) = after(agent, "stat", "echo 1234 >file; ln -s file link")?;
        let kind_of = |attrs: Attrs| format!("{:o}", attrs.mode.unwrap_or(0) & 0o170_000);
        same("STAT's type", kind_of(sftp.attrs(kind::STAT, format!("{dir}/link"))?), "100000")?;
        same("LSTAT's type", kind_of(sftp.attrs(kind::LSTAT, format!("{dir}/link"))?), "120000")
    }),
    GROUP.is("attributes have size, owner, mode and times", |agent| {
        let (mut sftp, _, path) = after(agent, "attributes", "echo 1234 >file; chown 12:34 file; chmod 4751 file; touch -d @1000000000 file")?;
        let seen = sftp.attrs(kind::STAT, &path)?;
        let times = Some((1_000_000_000, 1_000_000_000));
        let wanted = Attrs { size: Some(5), owner: Some((12, 34)), mode: Some(0o104_751), times };
        same("it", format!("{seen:?}"), format!("{wanted:?}"))
    }),
    GROUP.is("what is not there is status 2", |agent| {
        let mut sftp = Sftp::open(agent)?;
        for kind in [kind::STAT, kind::LSTAT, kind::OPENDIR, kind::REMOVE, kind::READLINK] {
            same("it", sftp.status(kind, &of("/no/such"))?, NO_FILE)?;
        }
        let body = of("/no/such").u32(flag::READ).u32(0);
        same("OPEN", sftp.status(kind::OPEN, &body)?, NO_FILE)
    }),
    GROUP.is("READ gives bytes from any place, then the end", |agent| {
        let (mut sftp, _, path) = after(agent, "read", DIGITS)?;
        let handle = sftp.file(&path, flag::READ)?;
        same("the middle", data(sftp.read(&handle, 3, 4)?)?, "3456")?;
        same("the start", data(sftp.read(&handle, 0, 100)?)?, "0123456789")?;
        same("beyond the end", sftp.read(&handle, 10, 4)?.short(), format!("status {EOF}"))?;
        sftp.close(&handle).map_err(Into::into)
    }),
    GROUP.is("a file of 1 MiB goes there and back, asked for in a pipeline", |agent| {
        const PIECE: usize = 32 * 1024;
        let (mut sftp, _, path) = session(agent, "large")?;
        let bytes: Vec<u8> = (0..1_u32 << 18).flat_map(u32::to_be_bytes).collect();
        let handle = sftp.file(&path, flag::READ | flag::WRITE | flag::CREATE)?;
        let places: Vec<u64> = (0..bytes.len() / PIECE).map(|index| (index * PIECE) as u64).collect();
        for (place, piece) in places.iter().zip(bytes.chunks(PIECE)) {
            let _id = sftp.ask(kind::WRITE, &of(&handle).u64(*place).bytes(piece))?;
        }
        for _ in &places {
            same("WRITE", sftp.reply()?.1.short(), "status 0")?;
        }
        let mut asked = Vec::new();
        for place in &places {
            let body = of(&handle).u64(*place).u32(u32::try_from(PIECE).unwrap_or(0));
            asked.push(sftp.ask(kind::READ, &body)?);
        }
        let mut back = vec![Vec::new(); asked.len()];
        for _ in &places {
            let (id, reply) = sftp.reply()?;
            let at = asked.iter().position(|asked| *asked == id).ok_or("a reply to something else")?;
            if let Reply::Data(bytes) = reply {
                back[at] = bytes;
            }
        }
        hold("other bytes come back", back.concat() == bytes)
    }),
    GROUP.is("WRITE in the middle keeps the rest", |agent| {
        let (mut sftp, _, path) = after(agent, "middle", DIGITS)?;
        let handle = sftp.file(&path, flag::WRITE)?;
        sftp.write(&handle, 4, b"xy")?;
        sftp.close(&handle)?;
        same("it", content(agent, &path)?, "0123xy6789")
    }),
    GROUP.is("WRITE beyond the end leaves a hole", |agent| {
        let (mut sftp, _, path) = session(agent, "sparse")?;
        let handle = sftp.file(&path, flag::WRITE | flag::CREATE | flag::TRUNCATE)?;
        sftp.write(&handle, 100 << 20, b"end")?;
        sftp.close(&handle)?;
        let text = stat(agent, "%s %b", &path)?;
        let numbers: Vec<u64> = text.split(' ').filter_map(|word| word.parse().ok()).collect();
        same("the size", numbers[0], (100 << 20) + 3)?;
        hold("it takes up space", numbers[1] < 100)
    }),
    GROUP.is("TRUNCATE empties, EXCLUSIVE refuses what is there", |agent| {
        let (mut sftp, dir, path) = after(agent, "flags", DIGITS)?;
        let handle = sftp.file(&path, flag::WRITE | flag::CREATE | flag::TRUNCATE)?;
        sftp.close(&handle)?;
        same("the size", stat(agent, "%s", &path)?, "0")?;
        let exclusive = flag::WRITE | flag::CREATE | flag::EXCLUSIVE;
        same("EXCLUSIVE", sftp.status(kind::OPEN, &of(&path).u32(exclusive).u32(0))?, FAILURE)?;
        let handle = sftp.file(format!("{dir}/new"), exclusive)?;
        sftp.close(&handle).map_err(Into::into)
    }),
    GROUP.is("the place counts even if APPEND is given", |agent| {
        let (mut sftp, _, path) = after(agent, "append", "printf 0123 >file")?;
        let handle = sftp.file(&path, flag::WRITE | flag::APPEND)?;
        sftp.write(&handle, 4, b"45")?;
        sftp.write(&handle, 0, b"x")?;
        sftp.close(&handle)?;
        same("it", content(agent, &path)?, "x12345")
    }),
    GROUP.is("OPEN makes a file with the mode that is given", |agent| {
        let (mut sftp, _, path) = session(agent, "mode")?;
        let attrs = Attrs { mode: Some(0o640), ..Attrs::default() };
        let body = of(&path).u32(flag::WRITE | flag::CREATE).attrs(&attrs);
        let Reply::Handle(handle) = sftp.call(kind::OPEN, &body)? else {
            return Err("OPEN failed".into());
        };
        sftp.close(&handle)?;
        same("the mode", stat(agent, "%a", &path)?, "640")
    }),
    GROUP.is("another user's file in a sticky directory is refused with the reason", |agent| {
        let (mut sftp, dir, file) = session(agent, "sticky")?;
        let _made = agent.guest(&format!(
            "echo 2 >/proc/sys/fs/protected_regular && chmod 1777 {dir} && touch {file} && chown 1000 {file}"
        ))?;
        let body = of(&file).u32(flag::WRITE | flag::CREATE | flag::TRUNCATE).u32(0);
        let reply = sftp.call(kind::OPEN, &body)?;
        let has_reason = matches!(reply, Reply::Status(_)) && sftp.why.contains("sticky");
        hold(format!("OPEN gives {}", reply.short()), has_reason)
    }),
    GROUP.is("SETSTAT changes mode, owner, times or size", |agent| {
        let (mut sftp, _, path) = after(agent, "setstat", DIGITS)?;
        for one in one_by_one() {
            sftp.ok("setstat", kind::SETSTAT, &of(&path).attrs(&one))?;
        }
        same("it", stat(agent, "%s %u %g %a %X %Y", &path)?, CHANGED)
    }),
    GROUP.is("SETSTAT changes all of these at once", |agent| {
        let (mut sftp, _, path) = after(agent, "setstat-all", DIGITS)?;
        sftp.ok("setstat", kind::SETSTAT, &of(&path).attrs(&changes()))?;
        same("it", stat(agent, "%s %u %g %a %X %Y", &path)?, CHANGED)
    }),
    GROUP.is("FSETSTAT does, on an open file", |agent| {
        let (mut sftp, _, path) = after(agent, "fsetstat", DIGITS)?;
        let handle = sftp.file(&path, flag::READ | flag::WRITE)?;
        for one in one_by_one() {
            sftp.ok("fsetstat", kind::FSETSTAT, &of(&handle).attrs(&one))?;
        }
        let attrs = sftp.attrs(kind::FSTAT, &handle)?;
        same("FSTAT's size", attrs.size.unwrap_or(0), 3)?;
        sftp.close(&handle)?;
        same("it", stat(agent, "%s %u %g %a %X %Y", &path)?, CHANGED)
    }),
    GROUP.is("MKDIR, RMDIR and REMOVE do what they say", |agent| {
        let (mut sftp, dir, _) = session(agent, "directories")?;
        let path = format!("{dir}/sub");
        sftp.ok("mkdir", kind::MKDIR, &of(&path).u32(0))?;
        let _is = agent.guest(&format!("test -d {path}"))?;
        sftp.put(format!("{path}/file"), b"x")?;
        sftp.ok("remove", kind::REMOVE, &of(format!("{path}/file")))?;
        sftp.ok("rmdir", kind::RMDIR, &of(&path))?;
        same("what is left", agent.guest(&format!("ls {dir}"))?, "")?;
        let again = sftp.status(kind::RMDIR, &of(&path))?;
        same("RMDIR of what is not there", again, NO_FILE)
    }),
    GROUP.is("RMDIR leaves a directory that is not empty", |agent| {
        let (mut sftp, dir, _) = after(agent, "full", DIGITS)?;
        same("it", sftp.status(kind::RMDIR, &of(&dir))?, FAILURE)?;
        let _is = agent.guest(&format!("test -e {dir}/file"))?;
        Ok(())
    }),
    GROUP.is("READDIR lists names, long names and attributes", |agent| {
        let (mut sftp, dir, _) = after(agent, "readdir", "echo 123 >file; mkdir sub; ln -s nowhere link; touch .hidden")?;
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
    }),
    GROUP.is("READDIR lists 500 files", |agent| {
        let (mut sftp, dir, _) = after(agent, "many", "for n in $(seq 500); do : >a-long-name-for-a-file-$n; done")?;
        let mut names: Vec<_> = sftp.list(&dir)?.into_iter().map(|(name, ..)| name).collect();
        names.sort_unstable();
        names.dedup();
        same("the number", names.len(), 500)
    }),
    GROUP.is("SYMLINK takes target, then link; READLINK reads it", |agent| {
        let (mut sftp, dir, _) = session(agent, "symlink")?;
        sftp.ok("symlink", kind::SYMLINK, &of("the/target").bytes(format!("{dir}/link")))?;
        same("the link", agent.guest(&format!("readlink {dir}/link"))?, "the/target")?;
        same("READLINK", sftp.name(kind::READLINK, format!("{dir}/link"))?, "the/target")
    }),
    GROUP.is("RENAME moves a file", |agent| {
        let (mut sftp, dir, _) = after(agent, "rename", "printf a >a")?;
        sftp.ok("rename", kind::RENAME, &of(format!("{dir}/a")).bytes(format!("{dir}/b")))?;
        same("what is there", agent.guest(&format!("cd {dir}; ls; cat b"))?, "b\na")
    }),
    GROUP.is("`posix-rename@openssh.com` replaces a file", |agent| {
        let (mut sftp, dir, _) = after(agent, "posix", "printf a >a; printf b >b")?;
        extended(&mut sftp, "posix-rename@openssh.com", &dir)?;
        same("what is there", agent.guest(&format!("cd {dir}; ls; cat b"))?, "b\na")
    }),
    GROUP.is("`hardlink@openssh.com` makes a second name", |agent| {
        let (mut sftp, dir, _) = after(agent, "hardlink", "printf a >a")?;
        extended(&mut sftp, "hardlink@openssh.com", &dir)?;
        same("links", agent.guest(&format!("stat -c %h {dir}/b"))?, "2")
    }),
    GROUP.is("`statvfs@openssh.com` tells the file system's sizes", |agent| {
        let mut sftp = Sftp::open(agent)?;
        let reply = sftp.call(kind::EXTENDED, &of("statvfs@openssh.com").bytes("/tmp"))?;
        let Reply::Numbers(numbers) = reply else { return Err(reply.short().into()) };
        same("the number of numbers", numbers.len(), 11)?;
        let size = agent.guest("stat -f -c '%S %b' /tmp")?;
        same("fragment size and blocks", format!("{} {}", numbers[1], numbers[2]), size)?;
        same("the longest name", numbers[10], 255)
    }),
    GROUP.is("`fsync@openssh.com` is there", |agent| {
        let (mut sftp, _, path) = session(agent, "fsync")?;
        let handle = sftp.file(&path, flag::WRITE | flag::CREATE)?;
        let body = of("fsync@openssh.com").bytes(&handle);
        sftp.ok("fsync", kind::EXTENDED, &body).map_err(Into::into)
    }),
    GROUP.is("an extension that nobody knows is status 8", |agent| {
        let mut sftp = Sftp::open(agent)?;
        let body = of("nothing@example.org").bytes("x");
        same("it", sftp.status(kind::EXTENDED, &body)?, UNSUPPORTED)?;
        hold("the session is over", sftp.attrs(kind::STAT, "/").is_ok())
    }),
    GROUP.is("names need not be UTF-8", |agent| {
        let (mut sftp, dir, _) = session(agent, "bytes")?;
        let mut path = format!("{dir}/").into_bytes();
        path.extend(b"\xff\xfe name");
        sftp.put(&path, b"x")?;
        let names: Vec<_> = sftp.list(&dir)?.into_iter().map(|(name, ..)| name).collect();
        hold("it is listed otherwise", names == [b"\xff\xfe name".to_vec()])?;
        let _attrs = sftp.attrs(kind::STAT, &path)?;
        sftp.ok("remove", kind::REMOVE, &of(&path)).map_err(Into::into)
    }),
    GROUP.is("a closed handle is refused", |agent| {
        let mut sftp = Sftp::open(agent)?;
        let handle = sftp.file("/etc/passwd", flag::READ)?;
        sftp.close(&handle)?;
        let reply = sftp.read(&handle, 0, 10)?;
        hold(
            format!("READ gives {}", reply.short()),
            matches!(reply, Reply::Status(code) if code > EOF),
        )
    }),
    GROUP.is("files belong to root, whoever asked last", |agent| {
        let (mut sftp, _, path) = session(agent, "root")?;
        sftp.put(&path, b"x")?;
        same("owner and mode", stat(agent, "%u %g %a", &path)?, "0 0 644")
    }),
];

fn upgrade(agent: &Agent) -> Claim {
    let (answer, _wire) = Sftp::upgrade(agent, "sftp")?;
    same("status", answer.short(), "101")?;
    same("Upgrade", answer.field("upgrade"), "sftp")?;
    same("Connection", answer.field("connection"), "Upgrade")
}

/// Opens a session. Returns it with an empty directory, and a path for a file in that directory.
fn session(agent: &Agent, name: &str) -> Try<(Sftp, String, String)> {
    after(agent, name, "true")
}

/// Like [`session`], after a script has run in the directory.
fn after(agent: &Agent, name: &str, script: &str) -> Try<(Sftp, String, String)> {
    let directory = format!("/tmp/sftp-{name}");
    let _made = agent.guest(&format!("mkdir -p {directory}; cd {directory}; {script}"))?;
    let file = format!("{directory}/file");
    Ok((Sftp::open(agent)?, directory, file))
}

/// Sends an extended request that takes the paths `a` and `b` in this directory.
fn extended(sftp: &mut Sftp, name: &str, dir: &str) -> Try {
    let body = of(name).bytes(format!("{dir}/a")).bytes(format!("{dir}/b"));
    sftp.ok(name, kind::EXTENDED, &body)
}

fn changes() -> Attrs {
    let times = Some((1_000_000_001, 1_000_000_002));
    Attrs { size: Some(3), owner: Some((1000, 1001)), mode: Some(0o604), times }
}

fn one_by_one() -> [Attrs; 4] {
    let Attrs { size, owner, mode, times } = changes();
    let none = Attrs::default;
    [
        Attrs { size, ..none() },
        Attrs { owner, ..none() },
        Attrs { mode, ..none() },
        Attrs { times, ..none() },
    ]
}

const DIGITS: &str = "printf 0123456789 >file";
const CHANGED: &str = "3 1000 1001 604 1000000001 1000000002";

fn data(reply: Reply) -> Result<String, Miss> {
    match reply {
        Reply::Data(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        other => Err(Miss::Differs(format!("READ gives {}", other.short()))),
    }
}

fn stat(agent: &Agent, format: &str, path: &str) -> Try<String> {
    agent.guest(&format!("stat -c '{format}' {path}"))
}

fn content(agent: &Agent, path: &str) -> Try<String> {
    agent.guest(&format!("od -An -c {path} | tr -d ' \\n'"))
}
