//! The machine that tests run on: how much slower it is than an idle one ([`patient`], [`wait`]), and namespaces of a
//! test's own, where this user may have them ([`in_private`]). For the tests of all crates.

mod rights;
mod speed;

pub use rights::{Private, in_private, private, skipped};
pub use speed::{SLOWDOWN, patient, slowdown, wait};
