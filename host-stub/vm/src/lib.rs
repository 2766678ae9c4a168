//! A QEMU machine whose agent can reach the host: options, disks, initramfs and console.

#![forbid(unsafe_code)]
#![allow(
    missing_debug_implementations,
    reason = "only this workspace links it, and nothing prints them"
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
