//! What the host changes while the VM runs takes effect in the guest.

mod disks;
mod nics;
mod resources;
