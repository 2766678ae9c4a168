//! TLS as both servers use it: 1.3 only, certificates compared byte by byte instead of by names and
//! dates (P§3.1, P§3.5).

use std::sync::Arc;

use anyhow::Result;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::Ticketer;
use rustls::crypto::verify_tls13_signature;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};

use super::certs::{Pair, provider};

/// Returns the configuration for calls to an agent with exactly this certificate.
pub fn client(pair: &Pair, agent: CertificateDer<'static>) -> Result<Arc<ClientConfig>> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Exactly(Some(agent))))
        .with_client_auth_cert(vec![pair.certificate.clone()], pair.key())?;
    Ok(Arc::new(config))
}

/// Returns the configuration for guests, whose certificate is requested and checked later. As with
/// Go's servers, a session ticket is sealed and contains all state.
pub fn server(pair: &Pair, tickets: usize) -> Result<Arc<ServerConfig>> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(Arc::new(Exactly(None)))
        .with_single_cert(vec![pair.certificate.clone()], pair.key())?;
    config.ticketer = Ticketer::new()?;
    config.send_tls13_tickets = tickets;
    Ok(Arc::new(config))
}

/// The methods that all verifiers have.
macro_rules! only_tls13 {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::General("only TLS 1.3".into()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let algorithms = provider().signature_verification_algorithms;
            verify_tls13_signature(message, cert, dss, &algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            provider().signature_verification_algorithms.supported_schemes()
        }
    };
}

/// Accepts this certificate, or any whose key the peer has, or none.
#[derive(Debug)]
pub struct Exactly(pub Option<CertificateDer<'static>>);

impl Exactly {
    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        match &self.0 {
            // rustls sends the alert AccessDenied for this error, as agents do.
            Some(own) if own != shown => {
                Err(CertificateError::ApplicationVerificationFailure.into())
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl ServerCertVerifier for Exactly {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(shown).map(|()| ServerCertVerified::assertion())
    }

    only_tls13!();
}

impl ClientCertVerifier for Exactly {
    fn client_auth_mandatory(&self) -> bool {
        self.0.is_some()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(shown).map(|()| ClientCertVerified::assertion())
    }

    only_tls13!();
}
