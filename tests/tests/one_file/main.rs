//! VMs whose image is one file: the agent as `/init` (`image/one-file`), alone or with busybox.

mod figures;
mod leaving;
mod running;
mod world;
