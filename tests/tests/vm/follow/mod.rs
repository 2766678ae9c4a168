//! What the host changes while the VM runs: the guest follows.

mod disks;
mod freeze;
mod nics;
mod resources;
mod restore;
