//! Attributes: reading and changing them.

use super::session::session;
use crate::conform::agent::Agent;
use crate::conform::sftp::{Attrs, Reply, Sftp, flag, kind, of};
use crate::conform::{Claim, same};

pub(super) fn stat(agent: &Agent) -> Claim {
    let (mut sftp, dir) = session(agent, "stat")?;
    let _made = agent.guest(&format!("cd {dir}; echo 1234 >file; ln -s file link"))?;
    let kind_of = |attrs: Attrs| format!("{:o}", attrs.mode.unwrap_or(0) & 0o170_000);
    same("STAT's type", kind_of(sftp.attrs(kind::STAT, format!("{dir}/link"))?), "100000")?;
    same("LSTAT's type", kind_of(sftp.attrs(kind::LSTAT, format!("{dir}/link"))?), "120000")
}

pub(super) fn told(agent: &Agent) -> Claim {
    let (mut sftp, dir) = session(agent, "attributes")?;
    let _made = agent.guest(&format!(
        "cd {dir}; echo 1234 >file; chown 12:34 file; chmod 4751 file; touch -d @1000000000 file"
    ))?;
    let seen = sftp.attrs(kind::STAT, format!("{dir}/file"))?;
    let times = Some((1_000_000_000, 1_000_000_000));
    let wanted = Attrs { size: Some(5), owner: Some((12, 34)), mode: Some(0o104_751), times };
    same("it", format!("{seen:?}"), format!("{wanted:?}"))
}

fn changes() -> Attrs {
    let times = Some((1_000_000_001, 1_000_000_002));
    Attrs { size: Some(3), owner: Some((1000, 1001)), mode: Some(0o604), times }
}

/// Each of [`changes`] alone.
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

const CHANGED: &str = "3 1000 1001 604 1000000001 1000000002";

pub(super) fn setstat(agent: &Agent) -> Claim {
    let (mut sftp, dir) = session(agent, "setstat")?;
    let path = format!("{dir}/file");
    sftp.put(&path, b"0123456789")?;
    for one in one_by_one() {
        sftp.ok("setstat", kind::SETSTAT, &of(&path).attrs(&one))?;
    }
    same("it", agent.guest(&format!("stat -c '%s %u %g %a %X %Y' {path}"))?, CHANGED)
}

pub(super) fn setstat_all(agent: &Agent) -> Claim {
    let (mut sftp, dir) = session(agent, "setstat-all")?;
    let path = format!("{dir}/file");
    sftp.put(&path, b"0123456789")?;
    sftp.ok("setstat", kind::SETSTAT, &of(&path).attrs(&changes()))?;
    same("it", agent.guest(&format!("stat -c '%s %u %g %a %X %Y' {path}"))?, CHANGED)
}

pub(super) fn fsetstat(agent: &Agent) -> Claim {
    let (mut sftp, dir) = session(agent, "fsetstat")?;
    let path = format!("{dir}/file");
    sftp.put(&path, b"0123456789")?;
    let handle = sftp.file(&path, flag::READ | flag::WRITE)?;
    for one in one_by_one() {
        sftp.ok("fsetstat", kind::FSETSTAT, &of(&handle).attrs(&one))?;
    }
    let attrs = sftp.attrs(kind::FSTAT, &handle)?;
    same("FSTAT's size", attrs.size.unwrap_or(0), 3)?;
    sftp.close(&handle)?;
    same("it", agent.guest(&format!("stat -c '%s %u %g %a %X %Y' {path}"))?, CHANGED)
}

pub(super) fn statvfs(agent: &Agent) -> Claim {
    let mut sftp = Sftp::open(agent)?;
    let reply = sftp.call(kind::EXTENDED, &of("statvfs@openssh.com").bytes("/tmp"))?;
    let Reply::Numbers(numbers) = reply else { return Err(reply.short().into()) };
    same("the number of numbers", numbers.len(), 11)?;
    let size = agent.guest("stat -f -c '%S %b' /tmp")?;
    same("fragment size and blocks", format!("{} {}", numbers[1], numbers[2]), size)?;
    same("the longest name", numbers[10], 255)
}
