//! Harness for the outside tests.
