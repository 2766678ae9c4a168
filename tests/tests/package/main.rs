//! The packages that `scripts/package` makes: what is in them, that they are the same each time, and what they do in
//! Debian roots with systemd, sysvinit, OpenRC and runit. Needs root; `scripts/test package` installs the tools.

mod built;
mod contents;
mod install;
mod live;
mod recipes;
mod root;
