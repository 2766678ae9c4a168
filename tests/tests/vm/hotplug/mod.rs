//! Changes by the host while the VM runs take effect in the guest.

mod disks;
mod nics;
mod resources;
