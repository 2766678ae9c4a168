//! Messages for rustls's errors. rustls's own use `Debug`, which the shipped build omits.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "rustls's enums, which are not exhaustive and mostly about unused features"
)]

use std::fmt;
use std::io;

use mote_core::tls::pem::PemError;
use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};

pub(crate) struct TlsError(Error);

/// Returns the error as an I/O error of kind `InvalidData`.
pub(crate) fn invalid(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, TlsError(error))
}

/// Why a PEM file is invalid.
#[derive(Debug)]
pub(crate) enum BadPem {
    /// It has no PEM block of the expected kind.
    Pem(PemError),
    /// Its certificate is not X.509.
    Encoding,
    /// Its key has a type that LXD and Incus do not create.
    KeyKind,
}

impl fmt::Display for BadPem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pem(why) => why.fmt(out),
            Self::Encoding => out.write_str(certificate(&CertificateError::BadEncoding)),
            Self::KeyKind => out.write_str("not an ECDSA P-256 or P-384 key"),
        }
    }
}

/// Why TLS cannot use the host's files.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// The named file is unusable.
    File(&'static str, BadPem),
    /// Certificate and key do not match.
    Pair,
    /// rustls refuses them.
    Tls(io::Error),
}

impl fmt::Display for Unusable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(name, why) => write!(out, "{name}: {why}"),
            Self::Pair => out.write_str("agent.key does not belong to agent.crt"),
            Self::Tls(why) => why.fmt(out),
        }
    }
}

impl From<io::Error> for Unusable {
    fn from(why: io::Error) -> Self {
        Self::Tls(why)
    }
}

/// Returns whether the peer presented a certificate other than the pinned one.
pub(crate) fn is_other_certificate(error: &io::Error) -> bool {
    let tls = error.get_ref().and_then(|error| error.downcast_ref::<TlsError>());
    tls.is_some_and(|TlsError(error)| *error == not_the_one())
}

/// Returns the verifiers' error for a certificate other than the pinned one.
pub(crate) fn not_the_one() -> Error {
    Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)
}

impl fmt::Display for TlsError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Error::AlertReceived(alert) => {
                let number = u8::from(*alert);
                write!(out, "the peer refused with TLS alert {number} ({})", name(*alert))
            }
            Error::General(text) => out.write_str(text),
            other => out.write_str(plain(other)),
        }
    }
}

fn plain(error: &Error) -> &'static str {
    match error {
        Error::InvalidCertificate(why) => certificate(why),
        Error::PeerIncompatible(why) => incompatible(why),
        Error::NoCertificatesPresented => "it presented no certificate",
        Error::InvalidMessage(_) => "it does not speak TLS",
        Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. }
        | Error::PeerMisbehaved(_) => "it violates the TLS protocol",
        Error::DecryptError => "a TLS record cannot be decrypted",
        Error::PeerSentOversizedRecord => "a TLS record is too long",
        Error::FailedToGetCurrentTime => "the system time is not available",
        Error::FailedToGetRandomBytes => "random numbers are not available",
        _ => "an unexpected TLS error",
    }
}

fn certificate(why: &CertificateError) -> &'static str {
    match why {
        CertificateError::ApplicationVerificationFailure => {
            "its certificate is not the expected one"
        }
        CertificateError::BadEncoding => "the certificate is not valid X.509",
        CertificateError::BadSignature => "it does not own the key of its certificate",
        _ => "its certificate or signature has an unsupported type",
    }
}

fn incompatible(why: &PeerIncompatible) -> &'static str {
    match why {
        PeerIncompatible::NoCipherSuitesInCommon => "no common cipher suite",
        PeerIncompatible::NoKxGroupsInCommon => "no common key exchange",
        PeerIncompatible::NoSignatureSchemesInCommon
        | PeerIncompatible::NoCertificateRequestSignatureSchemesInCommon => {
            "no common signature algorithm"
        }
        _ => "it does not speak TLS 1.3",
    }
}

/// The alert's name in RFC 8446 section 6.2.
fn name(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::UnexpectedMessage => "unexpected_message",
        AlertDescription::HandshakeFailure => "handshake_failure",
        AlertDescription::BadCertificate => "bad_certificate",
        AlertDescription::UnsupportedCertificate => "unsupported_certificate",
        AlertDescription::CertificateExpired => "certificate_expired",
        AlertDescription::CertificateUnknown => "certificate_unknown",
        AlertDescription::IllegalParameter => "illegal_parameter",
        AlertDescription::UnknownCA => "unknown_ca",
        AlertDescription::AccessDenied => "access_denied",
        AlertDescription::DecodeError => "decode_error",
        AlertDescription::DecryptError => "decrypt_error",
        AlertDescription::ProtocolVersion => "protocol_version",
        AlertDescription::InternalError => "internal_error",
        AlertDescription::CertificateRequired => "certificate_required",
        _ => "see RFC 8446",
    }
}

impl fmt::Debug for TlsError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl std::error::Error for TlsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_a_certificate_other_than_the_pinned_one() {
        assert!(is_other_certificate(&invalid(not_the_one())));
        for other in [
            Error::InvalidCertificate(CertificateError::BadSignature),
            Error::NoCertificatesPresented,
            Error::AlertReceived(AlertDescription::BadCertificate),
        ] {
            assert!(!is_other_certificate(&invalid(other)));
        }
        assert!(!is_other_certificate(&io::ErrorKind::InvalidData.into()));
    }

    #[test]
    fn alerts_are_reported_with_number_and_name() {
        let text = |alert| TlsError(Error::AlertReceived(alert)).to_string();
        let refused = "the peer refused with TLS alert";
        assert_eq!(text(AlertDescription::UnknownCA), format!("{refused} 48 (unknown_ca)"));
        assert_eq!(text(AlertDescription::UserCanceled), format!("{refused} 90 (see RFC 8446)"));
    }
}
