//! The host API: the requests of LXD or Incus over vsock (P§4), without I/O. The shell's handlers
//! need a [`HostPeer`](host_info::HostPeer).

#[cfg(feature = "alloc")]
pub mod event;
#[cfg(feature = "alloc")]
pub mod exec;
pub mod host_info;
pub mod info;
#[cfg(feature = "alloc")]
pub mod mount;
pub mod operation;
pub mod policy;
#[cfg(feature = "alloc")]
pub mod port_forward;
pub mod route;
