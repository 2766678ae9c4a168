//! The packages that `scripts/package` builds: contents, reproducibility, and installation in
//! Debian roots with systemd, sysvinit, OpenRC and runit. Needs root; `scripts/test package`
//! installs the tools.

mod contents;
mod install;
mod layers;
