//! The host's side: what LXD or Incus may ask of us over vsock (P§4), for the part that is ours to
//! decide. Every entry needs a [`HostPeer`](crate::hostpeer::HostPeer).

pub mod info;
pub mod route;
