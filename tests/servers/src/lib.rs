//! `mote-servers`, behind `scripts/real-server`: a guest agent driven by an unmodified LXD or Incus and by
//! people's own way to it, the server's command line.
//!
//! `drive` runs on this machine: it boots an outer VM in which the server is real, with `/dev/kvm` and
//! vhost-vsock (`outer`), and makes the table (`page`). `check` runs in there: it sets the server up
//! (`setup`) and looks (`checks`), and says what it sees, one line of JSON each (`report`).

#![allow(missing_docs, reason = "code of tests: the name of an item says what it is")]

pub mod checks;
pub mod drive;
pub mod instance;
pub mod line;
pub mod options;
pub mod outer;
pub mod page;
pub mod report;
pub mod run;
pub mod server;
pub mod setup;
pub mod terminal;
pub mod warm;
pub mod world;
