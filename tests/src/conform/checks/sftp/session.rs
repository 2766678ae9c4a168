//! SFTP sessions with a directory for each check.

use crate::conform::agent::Agent;
use crate::conform::sftp::Sftp;

pub(super) fn session(agent: &Agent, name: &str) -> Result<(Sftp, String), String> {
    let directory = format!("/tmp/sftp-{name}");
    let _made = agent.guest(&format!("mkdir -p {directory}"))?;
    Ok((Sftp::open(agent)?, directory))
}
