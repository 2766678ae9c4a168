//! Agents that an initramfs starts, checked by the host before, during and after switch_root: the
//! root's own agent takes over, or the first one continues if the root has none.

mod busybox;
mod debian;
mod world;
