//! TLS as both servers use it: 1.3 only, certificates compared byte by byte instead of by names and
//! dates (P§3.1, P§3.5). Certificates are self-signed, P-384, with keys as SEC1 PEM (P§1.2).

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::Ticketer;
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};

use crate::common::whole_file::write_whole;

/// Session tickets per connection, as in Go.
const TICKETS: usize = 1;

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
pub fn server(pair: &Pair) -> Result<Arc<ServerConfig>> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(Arc::new(Exactly(None)))
        .with_single_cert(vec![pair.certificate.clone()], pair.key())?;
    config.ticketer = Ticketer::new()?;
    config.send_tls13_tickets = TICKETS;
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

/// Accepts only this certificate; `None` accepts any whose key the peer has, or no certificate.
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

/// PEM with the line ends that both servers write.
const UNIX: pem::EncodeConfig = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);

pub struct Pair {
    /// The certificate, DER.
    pub certificate: CertificateDer<'static>,
    /// The certificate, PEM as in files and in the PUT.
    pub pem: String,
    key: PrivateKeyDer<'static>,
}

impl Pair {
    pub fn load_or_make(directory: &Path, name: &str) -> Result<Self> {
        let [crt, key] = ["crt", "key"].map(|kind| directory.join(format!("{name}.{kind}")));
        // The certificate is written last, so the key exists if it does.
        if !crt.exists() {
            fs::create_dir_all(directory)?;
            make(&crt, &key)?;
        }
        let pem = fs::read_to_string(&crt).with_context(|| crt.display().to_string())?;
        Ok(Self { certificate: certificate(&crt)?, pem, key: PrivateKeyDer::from_pem_file(&key)? })
    }

    pub fn key(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key()
    }

    pub fn fingerprint(&self) -> String {
        HEXLOWER.encode(digest(&SHA256, &self.certificate).as_ref())
    }
}

pub fn certificate(path: &Path) -> Result<CertificateDer<'static>> {
    CertificateDer::from_pem_file(path).with_context(|| path.display().to_string())
}

pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn make(crt: &Path, key: &Path) -> Result<()> {
    use rcgen::ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
    use rcgen::KeyUsagePurpose::{DigitalSignature, KeyEncipherment};
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384)?;
    // Both servers use this name, and Go's clients ask for it (P§3.1).
    let mut params = rcgen::CertificateParams::new(vec!["unspecified".to_owned()])?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "mote-host");
    params.distinguished_name.push(rcgen::DnType::CommonName, "root@mote-host");
    params.key_usages = vec![DigitalSignature, KeyEncipherment];
    params.extended_key_usages = vec![ServerAuth, ClientAuth];
    let certificate = params.self_signed(&pair)?;
    let sec1 = pem::Pem::new("EC PRIVATE KEY", sec1(&pair.serialize_der())?);
    write_whole(key, pem::encode_config(&sec1, UNIX).as_bytes(), 0o600)?;
    write_whole(crt, certificate.pem().as_bytes(), 0o644)
}

/// Converts PKCS#8 as ring writes it to RFC 5915 with its curve, which Go requires.
fn sec1(pkcs8: &[u8]) -> Result<Vec<u8>> {
    let after = |marker: &[u8], length: usize| -> Option<&[u8]> {
        let at = pkcs8.windows(marker.len()).position(|window| window == marker)? + marker.len();
        pkcs8.get(at..at + length)
    };
    // First version 1 and the key, then the public key as a bit string.
    let (private, public) = (after(&[2, 1, 1, 4, 48], 48), after(&[3, 98, 0], 97));
    let (Some(private), Some(public)) = (private, public) else { bail!("not a P-384 key") };
    let mut out = vec![0x30, 0x81, 164, 2, 1, 1, 4, 48];
    out.extend(private);
    // secp384r1.
    out.extend([0xa0, 7, 6, 5, 0x2b, 0x81, 4, 0, 0x22, 0xa1, 100, 3, 98, 0]);
    out.extend(public);
    Ok(out)
}
