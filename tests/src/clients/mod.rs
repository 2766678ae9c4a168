//! Existing client programs and libraries, used on an agent. A small program under `tests/clients`
//! runs each and prints a line for each case: `NAME: ok`, or what was observed instead. `page`
//! writes the results side by side; `reasons` explains the differences.

pub mod bridge;
pub mod kept;
pub mod list;
pub mod page;
pub mod reasons;
mod run;
mod seen;
mod subject;
pub mod world;

pub use list::{CLIENTS, Client, Place};
pub use run::{run, run_all};
pub use seen::{Cells, NOT_HERE, Seen, cells};
pub use subject::{Played, Subject};
