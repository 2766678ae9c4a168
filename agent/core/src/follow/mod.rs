//! What the host changes while the VM runs, as the kernel tells of it.

pub mod clock;
pub mod disk;
pub mod event;
pub mod nics;
pub mod resources;
pub mod restore;
