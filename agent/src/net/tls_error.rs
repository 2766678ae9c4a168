//! Messages for rustls's errors. rustls's own use `Debug`, which the shipped build omits.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "rustls's enums are not exhaustive, and mostly about unused features"
)]

use std::fmt;
use std::io;

use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};

pub(super) const NO_X509: &str = "the certificate is not valid X.509";

pub(crate) struct TlsError(Error);

/// Returns the error as an I/O error of kind `InvalidData`.
pub(crate) fn invalid(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, TlsError(error))
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
        CertificateError::BadEncoding => NO_X509,
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
    fn alerts_are_reported_with_number_and_name() {
        let text = |alert| TlsError(Error::AlertReceived(alert)).to_string();
        let refused = "the peer refused with TLS alert";
        assert_eq!(text(AlertDescription::UnknownCA), format!("{refused} 48 (unknown_ca)"));
        assert_eq!(text(AlertDescription::UserCanceled), format!("{refused} 90 (see RFC 8446)"));
    }
}
