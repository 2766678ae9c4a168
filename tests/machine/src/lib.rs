//! The machine that tests run on: how much slower it is than an idle one ([`patient`], [`wait`]), and namespaces of a
//! test's own, where this user may have them ([`in_private`]), and programs that end ([`bounded`]). For the tests of all
//! crates.

#![allow(missing_docs, reason = "code of tests: the name of an item says what it is")]

mod bounded;
mod rights;
mod speed;

pub use bounded::{bounded, output};
pub use rights::{Private, in_private, private, skipped};
pub use speed::{SLOWDOWN, in_time, patient, slowdown, wait};
