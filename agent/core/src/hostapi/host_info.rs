//! The host info: the body of `PUT /1.0`, and `agent.conf`, which has the same format (P§3.3).

use core::fmt;

use crate::host_address::HostAddress;
use crate::json::{JsonError, Value};

/// Longest certificate, bytes of PEM; a chain of a few RSA certificates fits.
pub const CERTIFICATE: usize = 16 * 1024;

/// The host info. The certificate is stored as JSON; [`HostInfo::certificate_pem`] decodes it.
#[derive(Clone, Copy, Debug)]
pub struct HostInfo<'j> {
    pub address: HostAddress,
    /// Whether the guest may use the devlxd API: `devlxd` or, on Incus, `dev_incus`.
    pub guest_api: bool,
    certificate: Value<'j>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHostInfo {
    Json(JsonError),
    /// `cid` or `port` is missing or invalid for a host.
    Address,
    /// `certificate` is missing, not a string, or longer than [`CERTIFICATE`].
    Certificate,
}

impl fmt::Display for BadHostInfo {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => error.fmt(out),
            Self::Address => out.write_str("cid or port is missing or invalid"),
            Self::Certificate => out.write_str("certificate is missing or invalid"),
        }
    }
}

impl<'j> HostInfo<'j> {
    /// Reads the document; ignores unknown members. Errors: [`BadHostInfo`] if it is not JSON, or
    /// an address or a certificate is missing or invalid.
    pub fn parse(bytes: &'j [u8]) -> Result<Self, BadHostInfo> {
        let fields = ["cid", "port", "certificate", "devlxd", "dev_incus"];
        let fields = Value::parse(bytes).and_then(|info| info.fields(fields));
        let [cid, port, certificate, devlxd, dev_incus] = fields.map_err(BadHostInfo::Json)?;
        let number = |value: Option<Value<'_>>| value?.number().ok();
        let address = number(cid)
            .zip(number(port))
            .and_then(|(cid, port)| HostAddress::new(cid, port))
            .ok_or(BadHostInfo::Address)?;
        let certificate = certificate
            .filter(|text| text.raw().len() <= CERTIFICATE)
            .ok_or(BadHostInfo::Certificate)?;
        certificate.unescape(|_| Ok(())).map_err(|_| BadHostInfo::Certificate)?;
        let on = |value: Option<Value<'_>>| value.is_some_and(|on| on.boolean() == Ok(true));
        let guest_api = on(devlxd) || on(dev_incus);
        Ok(Self { address, guest_api, certificate })
    }

    /// Passes the certificate's PEM to `sink`, piece by piece.
    pub fn certificate_pem(&self, mut sink: impl FnMut(&[u8])) {
        // Cannot fail: `parse` has decoded it before.
        let _checked = self.certificate.unescape(|piece| {
            sink(piece.as_bytes());
            Ok(())
        });
    }
}

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
        assert!(authenticate(Some(b"abc"), b"abc").is_ok());
        assert_eq!(authenticate(Some(b"abd"), b"abc").err(), Some(NotTheHost));
        assert_eq!(authenticate(Some(b"abcd"), b"abc").err(), Some(NotTheHost));
        assert_eq!(authenticate(None, b"abc").err(), Some(NotTheHost));
        assert_eq!(authenticate(Some(b""), b"").err(), Some(NotTheHost));
    }
}
