//! Random identifiers.

use anyhow::{Result, anyhow};
use ring::rand::{SecureRandom, SystemRandom};

/// Returns a random UUID.
pub fn uuid() -> Result<String> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).map_err(|_| anyhow!("no random numbers"))?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    Ok(parts.join("-"))
}

/// Returns a random vsock port. Real hosts choose one at each start (P§3.3).
pub fn port() -> Result<u32> {
    const FIRST: u32 = 1024;
    let mut bytes = [0; 4];
    SystemRandom::new().fill(&mut bytes).map_err(|_| anyhow!("no random numbers"))?;
    Ok(FIRST + u32::from_be_bytes(bytes) % (65_536 - FIRST))
}
