//! `mote-servers`, behind `scripts/real-server`: drives a guest agent with an unmodified LXD or
//! Incus through the server's command line.
//!
//! `drive` runs on this machine. It boots an outer VM with `/dev/kvm` and vhost-vsock that contains
//! the real server (`outer`), and writes the table (`page`). `check` runs in the outer VM. It sets
//! the server up (`setup`), runs the checks (`checks`) and reports each result as a line of JSON
//! (`report`).

#![allow(missing_docs, reason = "code of tests: the name of an item says what it is")]

pub mod checks;
pub mod drive;
pub mod instance;
pub mod options;
pub mod outer;
pub mod page;
pub mod report;
pub mod run;
pub mod seen;
pub mod server;
pub mod setup;
pub mod terminal;
pub mod warm;
pub mod world;
