//! An agent that an initramfs starts, watched by the host before, during and after switch_root: a root's own agent takes
//! over, or the first goes on in a root that has none.

mod busybox;
mod debian;
mod world;
