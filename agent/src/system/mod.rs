//! The machine: kernel modules, devices and their events, network interfaces, process 1.

pub(crate) mod devices;
pub(crate) mod machine;
pub(crate) mod modules;
pub(crate) mod netlink;
pub(crate) mod power;
pub(crate) mod processes;
pub(crate) mod signs;
pub(crate) mod uevent;
