//! The host info: the body of `PUT /1.0`, and `agent.conf`, which has the same format (P§3.3).

use crate::host_address::HostAddress;
use crate::json::{BadDocument, Value};

/// Maximum size of a certificate, in bytes of PEM; a chain of a few RSA certificates fits.
pub const CERTIFICATE: usize = 16 * 1024;

/// The host info. The certificate is stored as JSON; [`HostInfo::certificate_pem`] decodes it.
#[derive(Clone, Copy, Debug)]
pub struct HostInfo<'j> {
    pub address: HostAddress,
    /// Whether the guest may use the devlxd API: `devlxd` or, on Incus, `dev_incus`.
    pub guest_api: bool,
    certificate: Value<'j>,
}

const ADDRESS: BadDocument = BadDocument::Member("cid or port is missing or invalid");
const BAD_CERTIFICATE: BadDocument = BadDocument::Member("certificate is missing or invalid");

impl<'j> HostInfo<'j> {
    /// Reads the document; ignores unknown members. Errors: [`BadDocument`] if it is not JSON, the
    /// address is missing or invalid for a host, or the certificate is missing, not a string, or
    /// longer than [`CERTIFICATE`].
    pub fn parse(bytes: &'j [u8]) -> Result<Self, BadDocument> {
        let fields = ["cid", "port", "certificate", "devlxd", "dev_incus"];
        let [cid, port, certificate, devlxd, dev_incus] = Value::parse(bytes)?.fields(fields)?;
        let number = |value: Option<Value<'_>>| value?.number().ok();
        let address = number(cid).zip(number(port));
        let address = address.and_then(|(cid, port)| HostAddress::new(cid, port)).ok_or(ADDRESS)?;
        let certificate = certificate
            .filter(|text| text.raw().len() <= CERTIFICATE && text.unescape(|_| Ok(())).is_ok())
            .ok_or(BAD_CERTIFICATE)?;
        let on = |value: Option<Value<'_>>| value.is_some_and(|on| on.boolean() == Ok(true));
        let guest_api = on(devlxd) || on(dev_incus);
        Ok(Self { address, guest_api, certificate })
    }

    /// Passes the certificate's PEM to `sink`, piece by piece.
    pub fn certificate_pem(&self, mut sink: impl FnMut(&[u8])) {
        // This cannot fail, because `parse` has decoded it before.
        let _checked = self.certificate.unescape(|piece| {
            sink(piece.as_bytes());
            Ok(())
        });
    }
}

/// Proof that the caller's certificate is the host's. Only [`authenticate`] creates one.
#[derive(Debug)]
pub struct HostPeer(());

/// Compares `server.crt`, byte for byte, with the certificate whose key the caller has proved to
/// own in the TLS handshake (P§3.1). Returns `None` if the caller presented no certificate or
/// another one, or if no certificate is expected.
pub fn authenticate(presented: Option<&[u8]>, expected: &[u8]) -> Option<HostPeer> {
    let is_host = !expected.is_empty() && presented == Some(expected);
    is_host.then_some(HostPeer(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUT: &str =
        "{\"cid\":2,\"port\":34567,\"certificate\":\"-----BEGIN\\nx\",\"devlxd\":true}";
    #[test]
    fn the_certificate_may_be_as_long_as_the_limit() {
        for (length, fits) in [(CERTIFICATE - 2, true), (CERTIFICATE - 1, false)] {
            let body = PUT.replace("-----BEGIN\\nx", &"x".repeat(length));
            assert_eq!(HostInfo::parse(body.as_bytes()).is_ok(), fits, "{length}");
        }
    }

    #[test]
    fn accepts_only_the_identical_certificate() {
        assert!(authenticate(Some(b"abc"), b"abc").is_some());
        for (presented, expected) in [
            (Some(&b"abd"[..]), &b"abc"[..]),
            (Some(b"abcd"), b"abc"),
            (None, b"abc"),
            (Some(b""), b""),
        ] {
            assert!(authenticate(presented, expected).is_none());
        }
    }
}
