//! A receipt for having checked who called: no host-API handler can be reached without one.

/// Held only by someone who compared the caller's certificate with the one we were given.
#[derive(Debug)]
pub struct HostPeer(());

/// The caller is not the host we were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotTheHost;

/// Compares the certificate that the caller proved to own with `server.crt`, byte for byte (P§3.1).
///
/// # Errors
/// [`NotTheHost`] if there was none, or another.
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
    fn only_the_very_same_certificate_is_the_host() {
        assert!(authenticate(Some(b"abc"), b"abc").is_ok());
        assert_eq!(authenticate(Some(b"abd"), b"abc").err(), Some(NotTheHost));
        assert_eq!(authenticate(Some(b"abcd"), b"abc").err(), Some(NotTheHost));
        assert_eq!(authenticate(None, b"abc").err(), Some(NotTheHost));
        assert_eq!(authenticate(Some(b""), b"").err(), Some(NotTheHost));
    }
}
