//! The machine that tests run on: its slowdown compared with an idle one ([`patient`], [`wait`]),
//! private namespaces if this user may create them ([`in_private`]), programs with a time limit
//! ([`bounded`]), and terminals ([`Pty`]). For the tests of all crates.

#![allow(missing_docs, reason = "code of tests: the name of an item says what it is")]

mod bounded;
mod pty;
mod rights;
mod speed;

pub use bounded::{bounded, output};
pub use pty::Pty;
pub use rights::{Private, in_private, private, skipped};
pub use speed::{SLOWDOWN, found, in_time, patient, slowdown, wait};
