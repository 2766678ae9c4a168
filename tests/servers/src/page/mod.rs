//! The page `docs/results/servers.md`: results, known reasons for failures, and the table.

pub mod reasons;
pub mod seen;
pub mod table;
