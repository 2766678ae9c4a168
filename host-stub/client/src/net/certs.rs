//! Certificates as LXD and Incus create them: self-signed, P-384, keys as SEC1 PEM (P§1.2).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::common::whole_file::write_whole;

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
    /// Reads `NAME.crt` and `NAME.key`, and creates them if they are missing.
    pub fn load_or_make(directory: &Path, name: &str) -> Result<Self> {
        let (crt, key) = paths(directory, name);
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

    /// Returns the SHA-256 of the DER, in hex.
    pub fn fingerprint(&self) -> String {
        HEXLOWER.encode(digest(&SHA256, &self.certificate).as_ref())
    }
}

fn paths(directory: &Path, name: &str) -> (PathBuf, PathBuf) {
    (directory.join(format!("{name}.crt")), directory.join(format!("{name}.key")))
}

pub fn certificate(path: &Path) -> Result<CertificateDer<'static>> {
    CertificateDer::from_pem_file(path).with_context(|| path.display().to_string())
}

/// Returns the cryptography of both TLS sides.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn make(crt: &Path, key: &Path) -> Result<()> {
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384)?;
    // Both servers use this name, and Go's clients ask for it (P§3.1).
    let mut params = rcgen::CertificateParams::new(vec!["unspecified".to_owned()])?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "mote-host");
    params.distinguished_name.push(rcgen::DnType::CommonName, "root@mote-host");
    params.key_usages =
        vec![rcgen::KeyUsagePurpose::DigitalSignature, rcgen::KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![
        rcgen::ExtendedKeyUsagePurpose::ServerAuth,
        rcgen::ExtendedKeyUsagePurpose::ClientAuth,
    ];
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
    // Version 1 and the key; the public key as a bit string.
    let (private, public) = (after(&[2, 1, 1, 4, 48], 48), after(&[3, 98, 0], 97));
    let (Some(private), Some(public)) = (private, public) else { bail!("not a P-384 key") };
    let mut out = vec![0x30, 0x81, 164, 2, 1, 1, 4, 48];
    out.extend(private);
    // secp384r1.
    out.extend([0xa0, 7, 6, 5, 0x2b, 0x81, 4, 0, 0x22, 0xa1, 100, 3, 98, 0]);
    out.extend(public);
    Ok(out)
}
