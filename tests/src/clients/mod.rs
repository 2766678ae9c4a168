//! Existing client programs and libraries, used on an agent. A small program under `tests/clients`
//! runs each and prints a line for each case: `NAME: ok`, or what was observed instead. `page`
//! writes the results side by side and explains the differences.

pub mod bridge;
pub mod list;
pub mod page;
pub mod world;

pub use list::{CLIENTS, Client, Place, Subject};
pub use page::{NOT_HERE, Seen, run, run_all};
