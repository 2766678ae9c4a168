//! The core of mote: the decisions of a guest agent for LXD and Incus.
//!
//! Bytes and time go in, bytes and decisions come out. The core does no I/O, never waits and reads
//! no clock; the shell (`agent/src`) does all of this. Without features, it does not allocate.
//! Modules are in reading order.
#![cfg_attr(not(test), no_std)]
#![allow(missing_docs, reason = "internal crate: some names need no comment")]
#![warn(clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::wildcard_enum_match_arm))]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;

pub mod base64;
pub mod decimal;
pub mod limits;
mod named;
pub mod time;

pub mod dial;
pub mod flavour;
pub mod host_address;
pub mod leave;
pub mod status;

pub mod json;
pub mod tls;
pub mod yaml;

pub mod http;
pub mod ws;

pub mod devlxd;
pub mod hostapi;

#[cfg(feature = "alloc")]
pub mod first_boot;
pub mod freeze;
pub mod guest_path;
pub mod hotplug;
#[cfg(feature = "alloc")]
pub mod init;
pub mod netlink;
pub mod ready_when;
pub mod report;
pub mod resume;

pub mod rate;
pub mod sftp;
