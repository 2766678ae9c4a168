//! A QEMU machine whose agent can reach the host: options, disks, initramfs and console.

#![forbid(unsafe_code)]
#![allow(missing_debug_implementations, missing_docs, reason = "this crate is internal")]
#![allow(clippy::disallowed_methods, reason = "opens no file below a path that a guest chose")]

pub mod acpi;
pub mod console;
pub mod initramfs;
pub mod iso;
pub mod overlay;
pub mod recipe;
