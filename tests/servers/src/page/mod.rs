//! The page `docs/results/servers.md`: what was seen, why a check fails where that is known, and the table.

pub mod reasons;
pub mod seen;
pub mod table;
