//! TLS as mote uses it: 1.3 only, certificates compared byte for byte, no ALPN (P§3.1, P§3.5).
//!
//! There is no certificate authority. Each side proves by signature that it owns its certificate,
//! which must be the pinned one: `server.crt` for callers, the one from the host info for the host.
//! Expiry and names do not matter, so an expired or nameless host certificate works (the Go agents
//! refuse both).

use std::io;
use std::sync::Arc;

use mote_core::hostapi::host_info::{HostPeer, authenticate};
use mote_core::tls::{certificate as x509, pem};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
    UnbufferedClientConnection,
};
use rustls::crypto::{
    CipherSuiteCommon, CryptoProvider, GetRandomFailed, KeyProvider, SecureRandom,
    WebPkiSupportedAlgorithms, ring,
};
use rustls::pki_types::{
    CertificateDer, DnsName, PrivateKeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer, ServerName,
    SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};
use rustls::time_provider::TimeProvider;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, NamedGroup,
    PeerMisbehaved, ServerConfig, SignatureScheme, SupportedCipherSuite, Tls13CipherSuite,
};
use webpki::{RawPublicKeyEntity, ring as algorithms};

use crate::built;
use crate::config::files::ConfigFiles;
use crate::net::stream::Begun;
use crate::net::tickets::Store;
use crate::net::tls_error::{NO_X509, invalid, not_the_one};
use crate::runtime::sha256;
use crate::sys::since_1970;

/// The name in LXD and Incus certificates, for which Go clients ask (P§3.1).
const SERVER_NAME: &str = "unspecified";
/// Maximum size of a certificate or key, in bytes of DER; a P-384 certificate has about 600.
const DER: usize = 8 * 1024;
/// Length of a P-256 key in a certificate, in bytes. No other type of key in Go's TLS has it.
const P256: usize = 91;
/// Length of a P-384 key in a certificate, in bytes.
const P384: usize = 120;
/// Minimum length of a 2048-bit RSA key in a certificate, in bytes: its exponent has one byte.
const RSA_2048: usize = 292;
/// Maximum length of an 8192-bit RSA key, in bytes: ring accepts exponents of 33 bits.
const RSA_8192: usize = 1064;

/// The message for a key with a different type or length.
const KEY_KIND: &str = "its key is not P-256, P-384 or (server) RSA of 2048 to 8192 bits";

/// Accepted signature algorithms: those of the keys that LXD and Incus create (P-384), and of keys
/// that an administrator may have installed instead.
static VERIFY: WebPkiSupportedAlgorithms = WebPkiSupportedAlgorithms {
    all: &[
        algorithms::ECDSA_P384_SHA384,
        algorithms::ECDSA_P256_SHA256,
        algorithms::RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
        algorithms::RSA_PSS_2048_8192_SHA384_LEGACY_KEY,
        algorithms::RSA_PSS_2048_8192_SHA512_LEGACY_KEY,
    ],
    mapping: &[
        (SignatureScheme::ECDSA_NISTP384_SHA384, &[algorithms::ECDSA_P384_SHA384]),
        (SignatureScheme::ECDSA_NISTP256_SHA256, &[algorithms::ECDSA_P256_SHA256]),
        (SignatureScheme::RSA_PSS_SHA256, &[algorithms::RSA_PSS_2048_8192_SHA256_LEGACY_KEY]),
        (SignatureScheme::RSA_PSS_SHA384, &[algorithms::RSA_PSS_2048_8192_SHA384_LEGACY_KEY]),
        (SignatureScheme::RSA_PSS_SHA512, &[algorithms::RSA_PSS_2048_8192_SHA512_LEGACY_KEY]),
    ],
};

pub(crate) type Server = Arc<ServerConfig>;

/// The agent's certificate and key, and the only accepted caller.
pub(crate) struct Identity {
    certified: Arc<CertifiedKey>,
    provider: Arc<CryptoProvider>,
    caller: Vec<u8>,
}

impl Identity {
    /// Reads `agent.crt`, `agent.key` and `server.crt`. Errors: which file is unusable, and why.
    pub(crate) fn load(files: &ConfigFiles) -> Result<Self, String> {
        let of = |name| move |why| format!("{name}: {why}");
        let own = certificate(&files.agent_crt).map_err(of("agent.crt"))?;
        let key = private_key(&files.agent_key).map_err(of("agent.key"))?;
        let caller = certificate(&files.server_crt).map_err(of("server.crt"))?.to_vec();
        if key.public_key().is_some_and(|key| public_key(&own) != Ok(key)) {
            return Err("agent.key: does not belong to agent.crt".into());
        }
        let certified = CertifiedKey::new(vec![own], key);
        Ok(Self { certified: Arc::new(certified), provider: Arc::new(provider()), caller })
    }

    /// Returns the TLS configuration for callers, which must prove to own `server.crt`.
    /// Errors: rustls's, by [`invalid`].
    pub(crate) fn server(&self) -> io::Result<Server> {
        let verifier = Arc::new(Pinned(self.caller.clone()));
        let mut config = ServerConfig::builder_with_details(self.provider.clone(), Arc::new(Clock))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(invalid)?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(self.certified.clone())));
        // LXD and Incus keep no sessions, so a ticket would be useless; and a resumed session would
        // bypass the verifier.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.max_early_data_size = 0;
        // The agent's cipher order applies: the caller may have AES in hardware when the guest does
        // not.
        config.ignore_client_order = true;
        Ok(Arc::new(config))
    }

    /// Returns the TLS configuration for calls to the host whose certificate has this SHA-256. Tickets
    /// belong to the configuration, so a new certificate never resumes an old session.
    /// Errors: rustls's, by [`invalid`].
    pub(crate) fn client(&self, fingerprint: [u8; 32]) -> io::Result<Client> {
        let mut config = ClientConfig::builder_with_details(self.provider.clone(), Arc::new(Clock))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(invalid)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Pin(fingerprint)))
            .with_client_cert_resolver(Arc::new(AlwaysOurs(self.certified.clone())));
        let tickets = Arc::<Store>::default();
        config.resumption = Resumption::store(tickets.clone());
        config.enable_sni = true;
        Ok(Client { config: Arc::new(config), tickets })
    }

    /// Returns the proof, for handlers of the host API, that this certificate is the host's.
    pub(crate) fn receipt(&self, presented: Option<&[CertificateDer<'_>]>) -> Option<HostPeer> {
        let leaf = presented.and_then(<[CertificateDer<'_>]>::first);
        authenticate(leaf.map(CertificateDer::as_ref), &self.caller)
    }
}

#[derive(Clone)]
pub(crate) struct Client {
    config: Arc<ClientConfig>,
    pub(crate) tickets: Arc<Store>,
}

impl Client {
    /// Begins a handshake: generates its keys, and takes a ticket if available.
    /// Errors: rustls's, by [`invalid`].
    pub(crate) fn begin(&self) -> io::Result<Begun> {
        let name = DnsName::try_from(SERVER_NAME).map_err(|_| io::ErrorKind::InvalidInput)?;
        let begun = UnbufferedClientConnection::new(self.config.clone(), name.into());
        begun.map(Begun::from).map_err(invalid)
    }
}

/// Returns the SHA-256 of the host info's certificate (PEM). Errors: why it is unusable.
pub(crate) fn pem_fingerprint(pem: &[u8]) -> Result<[u8; 32], String> {
    certificate(pem).map(|der| sha256(&der)).map_err(|why| format!("certificate: {why}"))
}

/// Returns whether both PEM texts contain the same certificate.
pub(crate) fn is_same(one: &[u8], other: &[u8]) -> bool {
    certificate(one).is_ok_and(|one| certificate(other).is_ok_and(|other| one == other))
}

fn certificate(pem: &[u8]) -> Result<CertificateDer<'static>, String> {
    let mut der = vec![0; DER];
    let length = pem::certificate(pem, &mut der).map_err(|why| why.to_string())?.len();
    der.truncate(length);
    let certificate = CertificateDer::from(der);
    match x509::public_key(&certificate).ok_or(NO_X509)?.len() {
        P256 | P384 | RSA_2048..=RSA_8192 => Ok(certificate),
        _ => Err(KEY_KIND.into()),
    }
}

/// Returns the certificate's public key. rustls's parser refuses some, and costs 14 KB.
fn public_key<'c>(
    certificate: &'c CertificateDer<'_>,
) -> Result<SubjectPublicKeyInfoDer<'c>, Error> {
    let key = x509::public_key(certificate);
    key.map(SubjectPublicKeyInfoDer::from).ok_or_else(|| CertificateError::BadEncoding.into())
}

/// Checks that the owner of `certificate` has signed the handshake.
fn verify(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    dss: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    // rustls's own function would link messages for all of webpki's errors.
    let known = VERIFY.mapping.iter().find(|(scheme, _)| *scheme == dss.scheme);
    let Some(algorithm) = known.and_then(|(_, algorithms)| algorithms.first()) else {
        return Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
    };
    RawPublicKeyEntity::try_from(&public_key(certificate)?)
        .and_then(|key| key.verify_signature(*algorithm, message, dss.signature()))
        .map(|()| HandshakeSignatureValid::assertion())
        .map_err(|_| CertificateError::BadSignature.into())
}

fn private_key(pem: &[u8]) -> Result<Arc<dyn SigningKey>, String> {
    let mut der = vec![0; DER];
    let (kind, length) = pem::private_key(pem, &mut der)
        .map(|(kind, key)| (kind, key.len()))
        .map_err(|why| why.to_string())?;
    der.truncate(length);
    let key = match kind {
        pem::KeyKind::Sec1 => PrivateKeyDer::Sec1(PrivateSec1KeyDer::from(der)),
        pem::KeyKind::Pkcs8 => PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der)),
    };
    ring::sign::any_ecdsa_type(&key).map_err(|_| KEY_KIND.into())
}

static AES_128_GCM: Tls13CipherSuite = without_quic(&ring::cipher_suite::TLS13_AES_128_GCM_SHA256);
static AES_256_GCM: Tls13CipherSuite = without_quic(&ring::cipher_suite::TLS13_AES_256_GCM_SHA384);
static CHACHA20_POLY1305: Tls13CipherSuite =
    without_quic(&ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256);

/// Removes QUIC, which costs 1.8 kB.
const fn without_quic(suite: &SupportedCipherSuite) -> Tls13CipherSuite {
    match suite {
        SupportedCipherSuite::Tls13(suite) => Tls13CipherSuite {
            common: CipherSuiteCommon {
                suite: suite.common.suite,
                hash_provider: suite.common.hash_provider,
                confidentiality_limit: suite.common.confidentiality_limit,
            },
            hkdf_provider: suite.hkdf_provider,
            aead_alg: suite.aead_alg,
            quic: None,
        },
        #[allow(unreachable_patterns, reason = "TLS 1.2, if another crate of the workspace has it")]
        _ => panic!(),
    }
}

/// Returns ring with the algorithms that both sides have: AES, preceded by ChaCha20 on CPUs without
/// AES instructions; X25519 first.
fn provider() -> CryptoProvider {
    let mut cipher_suites =
        vec![SupportedCipherSuite::Tls13(&AES_128_GCM), SupportedCipherSuite::Tls13(&AES_256_GCM)];
    if built::CHACHA20 && offers_chacha20() {
        cipher_suites.insert(0, SupportedCipherSuite::Tls13(&CHACHA20_POLY1305));
    }
    CryptoProvider {
        cipher_suites,
        kx_groups: vec![
            ring::kx_group::X25519,
            ring::kx_group::SECP256R1,
            ring::kx_group::SECP384R1,
        ],
        signature_verification_algorithms: VERIFY,
        secure_random: &Kernel,
        key_provider: &EcdsaKeys,
    }
}

/// Returns whether ChaCha20 is offered and preferred: on a CPU without AES instructions it takes at
/// most a quarter of AES's time. Every host also has AES. On `x86_64`, `scripts/build` does not
/// link ring's ChaCha20 for CPUs with SSE4.1 (40 kB); of these, only Penryn and Nehalem lack AES
/// instructions. Both checks read the same CPUID bit.
fn offers_chacha20() -> bool {
    #[cfg(target_arch = "x86_64")]
    return !std::arch::is_x86_feature_detected!("sse4.1");
    #[cfg(target_arch = "aarch64")]
    return !std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return true;
}

/// The random numbers of ring, from getrandom(2).
#[derive(Debug)]
struct Kernel;

impl SecureRandom for Kernel {
    fn fill(&self, out: &mut [u8]) -> Result<(), GetRandomFailed> {
        use ::ring::rand::SecureRandom as _;
        ::ring::rand::SystemRandom::new().fill(out).map_err(|_| GetRandomFailed)
    }
}

/// The clock for the age of tickets. rustls has a clock only with the feature `std`, which adds
/// session stores that are never used.
#[derive(Debug)]
struct Clock;

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(since_1970()))
    }
}

/// Loads only ECDSA keys, which LXD and Incus create: RSA signing would cost 30 KB.
#[derive(Debug)]
struct EcdsaKeys;

impl KeyProvider for EcdsaKeys {
    fn load_private_key(&self, key: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        ring::sign::any_ecdsa_type(&key)
    }
}

/// Sends the agent's certificate regardless of the authorities that the host names: in PKI mode the
/// host names one that did not sign this certificate (P§3.5).
#[derive(Debug)]
struct AlwaysOurs(Arc<CertifiedKey>);

impl rustls::client::ResolvesClientCert for AlwaysOurs {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// The methods that both verifiers have in common.
macro_rules! signatures {
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
            verify(message, cert, dss)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            VERIFY.supported_schemes()
        }
    };
}

/// SHA-256 of the certificate (DER) that the host must present; the serial line has no room for
/// more.
#[derive(Debug)]
struct Pin([u8; 32]);

impl ServerCertVerifier for Pin {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if sha256(end_entity) == self.0 {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(not_the_one())
        }
    }

    signatures!();
}

/// The certificate (DER) that a caller must present.
#[derive(Debug)]
struct Pinned(Vec<u8>);

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match authenticate(Some(end_entity.as_ref()), &self.0) {
            Some(_) => Ok(ClientCertVerified::assertion()),
            None => Err(not_the_one()),
        }
    }

    signatures!();
}

/// Ignores rustls's key, the server name, which is always the same.
impl ClientSessionStore for Store {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.choose(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.chosen()
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        self.put(ticket);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.take()
    }
}
