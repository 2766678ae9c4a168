//! mote-agent.
fn main() {}
