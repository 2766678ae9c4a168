//! The core of mote: what LXD and Incus ask of their guest agent, as pure decisions.
//!
//! Bytes and time go in, bytes and decisions come out. Nothing here does I/O, waits or reads a
//! clock; the shell in `src/bin/mote-agent/` does. The status channel, HTTP and devlxd never
//! allocate. Modules in reading order.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod limits;
pub mod time;
pub mod wall;

pub mod flavour;
pub mod line;
pub mod status;

pub mod certificate;
pub mod json;
pub mod peer;
pub mod pem;
pub mod policy;
pub mod ready;
pub mod yaml;

pub mod mount;
pub mod target;
pub mod template;

pub mod metrics;
pub mod netlink;
pub mod nic;
pub mod proc;
pub mod state;

pub mod http;
pub mod path;
pub mod ws;

pub mod devlxd;
pub mod hostapi;
pub mod hostpeer;

pub mod exec;
pub mod operation;
pub mod sftp;
pub mod tickets;
