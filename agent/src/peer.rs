//! What the host tells: the body of `PUT /1.0`, and `agent.conf`, which is the same (P§3.3).

use core::fmt;

use crate::json::{self, JsonError};
use crate::status::Address;

/// Longest text of a certificate, bytes of PEM; a chain of a few RSA certificates fits.
pub const CERTIFICATE: usize = 16 * 1024;

/// What was told. The certificate is still JSON: whoever needs it unescapes it into a place of its
/// own.
#[derive(Clone, Copy, Debug)]
pub struct Told<'j> {
    /// Where the host listens.
    pub address: Address,
    /// Whether guests may use devlxd: `devlxd` or, on Incus, `dev_incus`.
    pub guest_api: bool,
    certificate: &'j [u8],
}

/// Why it cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadTold {
    /// Not JSON.
    Json(JsonError),
    /// `cid` or `port` is missing or cannot be a host's.
    Address,
    /// `certificate` is missing, no text, or longer than [`CERTIFICATE`].
    Certificate,
}

impl fmt::Display for BadTold {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => error.fmt(out),
            Self::Address => out.write_str("cid and port are not a host's"),
            Self::Certificate => out.write_str("certificate is missing or unusable"),
        }
    }
}

impl<'j> Told<'j> {
    /// Reads the document. Unknown members are ignored.
    ///
    /// # Errors
    /// [`BadTold`].
    pub fn parse(bytes: &'j [u8]) -> Result<Self, BadTold> {
        let member = |key| json::member(bytes, key).map_err(BadTold::Json);
        let number =
            |raw: Option<&[u8]>| -> Option<u32> { core::str::from_utf8(raw?).ok()?.parse().ok() };
        let (cid, port) = (number(member("cid")?), number(member("port")?));
        let address = cid
            .zip(port)
            .and_then(|(cid, port)| Address::new(cid, port))
            .ok_or(BadTold::Address)?;
        let certificate = member("certificate")?.ok_or(BadTold::Certificate)?;
        if certificate.len() > CERTIFICATE {
            return Err(BadTold::Certificate);
        }
        json::unescape(certificate, |_| Ok(())).map_err(|_| BadTold::Certificate)?;
        let on = |raw: Option<&[u8]>| raw == Some(b"true");
        let guest_api = on(member("devlxd")?) || on(member("dev_incus")?);
        Ok(Self { address, guest_api, certificate })
    }

    /// Gives the certificate's PEM, piece by piece.
    pub fn certificate_pem(&self, mut sink: impl FnMut(&[u8])) {
        // parse() has gone through it once.
        let _checked = json::unescape(self.certificate, |piece| {
            sink(piece);
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{format, vec::Vec};

    const PUT: &str =
        "{\"cid\":2,\"port\":34567,\"certificate\":\"-----BEGIN\\nx\",\"devlxd\":true}";

    #[test]
    fn both_flavours_are_read_with_their_newlines() {
        let told = Told::parse(PUT.as_bytes()).unwrap();
        assert_eq!((told.address, told.guest_api), (Address { cid: 2, port: 34567 }, true));
        let mut pem = Vec::new();
        told.certificate_pem(|piece| pem.extend_from_slice(piece));
        assert_eq!(pem, b"-----BEGIN\nx");
        let incus = PUT.replace("devlxd", "dev_incus");
        assert!(Told::parse(incus.as_bytes()).unwrap().guest_api);
        let off = PUT.replace(",\"devlxd\":true", "");
        assert!(!Told::parse(format!("{off}\n").as_bytes()).unwrap().guest_api);
    }

    #[test]
    fn every_cut_is_refused() {
        for cut in 0..PUT.len() {
            assert!(Told::parse(&PUT.as_bytes()[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn what_cannot_be_a_host_is_refused() {
        for (from, to) in [
            ("\"cid\":2", "\"cid\":1"),
            ("\"cid\":2", "\"cid\":-2"),
            ("\"cid\":2", "\"cid\":\"2\""),
            ("\"cid\":2", "\"cid\":4294967295"),
            ("34567", "0"),
            ("34567", "1e3"),
            ("\"port\":34567,", ""),
        ] {
            let body = PUT.replace(from, to);
            assert_eq!(Told::parse(body.as_bytes()).err(), Some(BadTold::Address), "{body}");
        }
        let long = PUT.replace("x\"", &format!("{}\"", "x".repeat(CERTIFICATE)));
        assert_eq!(Told::parse(long.as_bytes()).err(), Some(BadTold::Certificate));
        let number = PUT.replace("\"-----BEGIN\\nx\"", "7");
        assert_eq!(Told::parse(number.as_bytes()).err(), Some(BadTold::Certificate));
        let deep = "[".repeat(100_000);
        assert_eq!(Told::parse(deep.as_bytes()).err(), Some(BadTold::Json(JsonError::TooDeep)));
    }
    #[test]
    fn the_certificate_may_be_as_long_as_the_limit() {
        for (length, fits) in [(CERTIFICATE - 2, true), (CERTIFICATE - 1, false)] {
            let body = PUT.replace("-----BEGIN\\nx", &"x".repeat(length));
            assert_eq!(Told::parse(body.as_bytes()).is_ok(), fits, "{length}");
        }
    }

    #[test]
    fn only_true_opens_the_guest_api() {
        for value in ["false", "null", "1", "\"true\"", "[true]"] {
            let body = PUT.replace("true", value);
            assert!(!Told::parse(body.as_bytes()).unwrap().guest_api, "{value}");
        }
    }

    #[test]
    fn members_we_do_not_know_and_their_order_do_not_matter() {
        let body = "{\"new\":{\"cid\":9},\"dev_incus\":true,\"certificate\":\"\\u0041\",\
                    \"port\":1,\"cid\":3}";
        let told = Told::parse(body.as_bytes()).unwrap();
        assert_eq!((told.address, told.guest_api), (Address { cid: 3, port: 1 }, true));
        let mut pem = Vec::new();
        told.certificate_pem(|piece| pem.extend_from_slice(piece));
        assert_eq!(pem, b"A");
    }

    #[test]
    fn what_follows_the_document_is_refused() {
        for rest in ["x", "{}", ","] {
            assert!(Told::parse(format!("{PUT}{rest}").as_bytes()).is_err(), "{rest}");
        }
        for other in ["[]", "7", "\"cid\""] {
            let error = Told::parse(other.as_bytes()).err();
            assert_eq!(error, Some(BadTold::Json(JsonError::Shape)), "{other}");
        }
    }
}
