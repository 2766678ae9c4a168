//! Random identifiers.

use uuid::Uuid;

pub fn uuid() -> String {
    Uuid::new_v4().to_string()
}

pub fn number() -> u32 {
    Uuid::new_v4().as_fields().0
}

/// Returns a random vsock port. Real hosts choose one at each start (P§3.3).
pub fn port() -> u32 {
    const FIRST: u32 = 1024;
    FIRST + number() % (65_536 - FIRST)
}
