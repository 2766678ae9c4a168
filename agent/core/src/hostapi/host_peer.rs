//! Proof that the caller is the host, which every host-API handler needs.

/// Proof that the caller's certificate is the host's. Only [`authenticate`] creates one.
#[derive(Debug)]
pub struct HostPeer(());

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotTheHost;

/// Compares the certificate whose key the caller has proved to own in the TLS handshake with
/// `server.crt`, byte for byte (P§3.1). Errors: [`NotTheHost`] if the caller presented no
/// certificate or another one, or if none is expected.
pub fn authenticate(presented: Option<&[u8]>, expected: &[u8]) -> Result<HostPeer, NotTheHost> {
    match presented {
        Some(presented) if !expected.is_empty() && presented == expected => Ok(HostPeer(())),
        Some(_) | None => Err(NotTheHost),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_the_identical_certificate() {
        assert!(authenticate(Some(b"abc"), b"abc").is_ok());
        assert_eq!(authenticate(Some(b"abd"), b"abc").err(), Some(NotTheHost));
        assert_eq!(authenticate(Some(b"abcd"), b"abc").err(), Some(NotTheHost));
        assert_eq!(authenticate(None, b"abc").err(), Some(NotTheHost));
        assert_eq!(authenticate(Some(b""), b"").err(), Some(NotTheHost));
    }
}
