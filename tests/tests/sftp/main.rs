//! The SFTP server: driven by OpenSSH's own client, and by packets that no client would send.

#![allow(clippy::unwrap_used, reason = "what fails in a test's set-up fails the test")]

mod hostile;
mod openssh;
mod requests;
mod through;
