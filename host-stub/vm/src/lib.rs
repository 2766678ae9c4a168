//! A QEMU machine whose agent can reach the host: options, disks, initramfs and console.

#![forbid(unsafe_code)]
#![allow(
    missing_debug_implementations,
    missing_docs,
    reason = "internal crate: nothing prints these types, and some names need no comment"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "nothing here opens a file below a directory that a guest names"
)]

pub mod console;
pub mod initramfs;
pub mod iso;
pub mod overlay;
pub mod recipe;
