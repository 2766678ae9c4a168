//! Hot-plugged devices, CPUs and memory, as the kernel reports them.

pub mod disk;
pub mod event;
pub mod nics;
pub mod resources;
