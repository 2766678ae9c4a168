//! The packages of `scripts/package`: contents, reproducibility, and installation in Debian roots
//! with systemd, sysvinit, OpenRC and runit. Needs root, and tools that `scripts/test` installs.

mod contents;
mod install;
mod layers;
