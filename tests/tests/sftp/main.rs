//! The SFTP server, driven by OpenSSH's client and by packets that no client sends.

#![allow(clippy::unwrap_used, reason = "what fails in a test's set-up fails the test")]

mod audit;
mod handles;
mod hostile;
mod limits;
mod mounts;
mod requests;
mod rights;
mod through;

use mote_tests::Scratch;
use mote_tests::sftp::{Reply, Session};

pub(crate) const FAILURE: Reply = Reply::Status(4);
pub(crate) const UNSUPPORTED: Reply = Reply::Status(8);

fn session() -> (Scratch, Session) {
    let scratch = Scratch::new();
    let session = Session::start(&scratch.0);
    (scratch, session)
}
