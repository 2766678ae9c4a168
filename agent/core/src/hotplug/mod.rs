//! Devices, CPUs and memory that the host adds while the VM runs, as the kernel reports them.

pub mod disk;
pub mod event;
pub mod nics;
pub mod resources;
