//! Content of files: reading, writing, opening.

use super::session::session;
use crate::conform::agent::Agent;
use crate::conform::sftp::{Attrs, EOF, FAILURE, Reply, Sftp, flag, kind, of};
use crate::conform::{Claim, Miss, hold, same};

fn data(reply: Reply) -> Result<String, Miss> {
    match reply {
        Reply::Data(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        other => Err(Miss::Differs(format!("READ gives {}", other.short()))),
    }
}

pub(super) fn read(agent: &Agent) -> Claim {
    let (mut sftp, dir) = session(agent, "read")?;
    let _made = agent.guest(&format!("printf 0123456789 >{dir}/file"))?;
    let handle = sftp.file(format!("{dir}/file"), flag::READ)?;
    same("the middle", data(sftp.read(&handle, 3, 4)?)?, "3456")?;
    same("the start", data(sftp.read(&handle, 0, 100)?)?, "0123456789")?;
    same("beyond the end", sftp.read(&handle, 10, 4)?.short(), format!("status {EOF}"))?;
    sftp.close(&handle).map_err(Into::into)
}

pub(super) fn large(agent: &Agent) -> Claim {
    const PIECE: usize = 32 * 1024;
    let (mut sftp, dir) = session(agent, "large")?;
    let bytes: Vec<u8> = (0..1_u32 << 18).flat_map(u32::to_be_bytes).collect();
    let handle = sftp.file(format!("{dir}/file"), flag::READ | flag::WRITE | flag::CREATE)?;
    let places: Vec<u64> = (0..bytes.len() / PIECE).map(|index| (index * PIECE) as u64).collect();
    for (place, piece) in places.iter().zip(bytes.chunks(PIECE)) {
        let _id = sftp.ask(kind::WRITE, &of(&handle).u64(*place).bytes(piece))?;
    }
    for _ in &places {
        let reply = sftp.reply()?.1;
        same("WRITE", reply.short(), "status 0")?;
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
}

/// Content of a file, read in the guest.
fn content(agent: &Agent, path: &str) -> Result<String, String> {
    agent.guest(&format!("od -An -c {path} | tr -d ' \\n'"))
}

pub(super) fn write_middle(agent: &Agent) -> Claim {
    let (mut sftp, dir) = session(agent, "middle")?;
    let path = format!("{dir}/file");
    sftp.put(&path, b"0123456789")?;
    let handle = sftp.file(&path, flag::WRITE)?;
    sftp.write(&handle, 4, b"xy")?;
    sftp.close(&handle)?;
    same("it", content(agent, &path)?, "0123xy6789")
}

pub(super) fn sparse(agent: &Agent) -> Claim {
    let (mut sftp, dir) = session(agent, "sparse")?;
    let path = format!("{dir}/file");
    let handle = sftp.file(&path, flag::WRITE | flag::CREATE | flag::TRUNCATE)?;
    sftp.write(&handle, 100 << 20, b"end")?;
    sftp.close(&handle)?;
    let text = agent.guest(&format!("stat -c '%s %b' {path}"))?;
    let numbers: Vec<u64> = text.split(' ').filter_map(|word| word.parse().ok()).collect();
    same("the size", numbers[0], (100 << 20) + 3)?;
    hold("it takes up space", numbers[1] < 100)
}

pub(super) fn create_flags(agent: &Agent) -> Claim {
    let (mut sftp, dir) = session(agent, "flags")?;
    let path = format!("{dir}/file");
    sftp.put(&path, b"something")?;
    let handle = sftp.file(&path, flag::WRITE | flag::CREATE | flag::TRUNCATE)?;
    sftp.close(&handle)?;
    same("the size", agent.guest(&format!("stat -c %s {path}"))?, "0")?;
    let exclusive = flag::WRITE | flag::CREATE | flag::EXCLUSIVE;
    let body = of(&path).u32(exclusive).u32(0);
    same("EXCLUSIVE", sftp.status(kind::OPEN, &body)?, FAILURE)?;
    let handle = sftp.file(format!("{dir}/new"), exclusive)?;
    sftp.close(&handle).map_err(Into::into)
}

pub(super) fn append(agent: &Agent) -> Claim {
    let (mut sftp, dir) = session(agent, "append")?;
    let path = format!("{dir}/file");
    sftp.put(&path, b"0123")?;
    let handle = sftp.file(&path, flag::WRITE | flag::APPEND)?;
    sftp.write(&handle, 4, b"45")?;
    sftp.write(&handle, 0, b"x")?;
    sftp.close(&handle)?;
    same("it", content(agent, &path)?, "x12345")
}

pub(super) fn open_mode(agent: &Agent) -> Claim {
    let (mut sftp, dir) = session(agent, "mode")?;
    let attrs = Attrs { mode: Some(0o640), ..Attrs::default() };
    let body = of(format!("{dir}/file")).u32(flag::WRITE | flag::CREATE).attrs(&attrs);
    let Reply::Handle(handle) = sftp.call(kind::OPEN, &body)? else {
        return Err("OPEN failed".into());
    };
    sftp.close(&handle)?;
    same("the mode", agent.guest(&format!("stat -c %a {dir}/file"))?, "640")
}

pub(super) fn sticky(agent: &Agent) -> Claim {
    let (mut sftp, dir) = session(agent, "sticky")?;
    let file = format!("{dir}/file");
    let _made = agent.guest(&format!(
        "echo 2 >/proc/sys/fs/protected_regular && chmod 1777 {dir} && touch {file} && chown 1000 {file}"
    ))?;
    let body = of(&file).u32(flag::WRITE | flag::CREATE | flag::TRUNCATE).u32(0);
    let reply = sftp.call(kind::OPEN, &body)?;
    let has_reason = matches!(reply, Reply::Status(_)) && sftp.why.contains("sticky");
    hold(format!("OPEN gives {}", reply.short()), has_reason)
}

pub(super) fn fsync(agent: &Agent) -> Claim {
    let (mut sftp, dir) = session(agent, "fsync")?;
    let handle = sftp.file(format!("{dir}/file"), flag::WRITE | flag::CREATE)?;
    let body = of("fsync@openssh.com").bytes(&handle);
    sftp.ok("fsync", kind::EXTENDED, &body).map_err(Into::into)
}

pub(super) fn closed_handle(agent: &Agent) -> Claim {
    let mut sftp = Sftp::open(agent)?;
    let handle = sftp.file("/etc/passwd", flag::READ)?;
    sftp.close(&handle)?;
    let reply = sftp.read(&handle, 0, 10)?;
    hold(
        format!("READ gives {}", reply.short()),
        matches!(reply, Reply::Status(code) if code > EOF),
    )
}
