//! Boots Debian with each of five init systems. Needs root and `MOTE_DEB` (`scripts/test distros`).

mod apt;
mod systems;
mod world;
