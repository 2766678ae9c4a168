//! Decodes PEM (RFC 7468) to DER: the first block with a label, into the caller's buffer.

use crate::named::named;

/// Maximum size of an accepted PEM text, in bytes.
pub const MAX_PEM: usize = 32 * 1024;

named! {
    pub enum PemError {
        Missing "no PEM block of that kind",
        /// There is no matching END line.
        Unended "the PEM block has no end",
        /// The block's content is not base64, or is empty.
        BadBase64 "the PEM block is not base64",
        /// The text is longer than [`MAX_PEM`], or the DER than the buffer.
        TooLong "too long",
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// `EC PRIVATE KEY` (RFC 5915), as LXD and Incus write it.
    Sec1,
    /// `PRIVATE KEY` (RFC 5958).
    Pkcs8,
}

/// Decodes the first certificate into `out`. Errors: any [`PemError`].
pub fn certificate<'o>(pem: &[u8], out: &'o mut [u8]) -> Result<&'o [u8], PemError> {
    block(pem, b"CERTIFICATE-----", out)
}

/// Decodes the first EC private key into `out`, or the first PKCS #8 one if there is none.
/// Errors: any [`PemError`].
pub fn private_key<'o>(pem: &[u8], out: &'o mut [u8]) -> Result<(KeyKind, &'o [u8]), PemError> {
    let (label, kind): (&[u8], _) = if find(pem, b"-----BEGIN EC PRIVATE KEY-----").is_some() {
        (b"EC PRIVATE KEY-----", KeyKind::Sec1)
    } else {
        (b"PRIVATE KEY-----", KeyKind::Pkcs8)
    };
    block(pem, label, out).map(|der| (kind, der))
}

fn block<'o>(pem: &[u8], label: &[u8], out: &'o mut [u8]) -> Result<&'o [u8], PemError> {
    if pem.len() > MAX_PEM {
        return Err(PemError::TooLong);
    }
    let mut rest = pem;
    let body = loop {
        let begin = find(rest, b"-----BEGIN ").ok_or(PemError::Missing)?;
        rest = rest.get(begin + 11..).unwrap_or_default();
        if let Some(body) = rest.strip_prefix(label) {
            break body;
        }
    };
    let end = find(body, b"-----END ").ok_or(PemError::Unended)?;
    if !body.get(end + 9..).unwrap_or_default().starts_with(label) {
        return Err(PemError::Unended);
    }
    base64(body.get(..end).unwrap_or_default(), out)
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

/// Decodes base64, ignoring white space. The padding must be complete.
pub(crate) fn base64<'o>(text: &[u8], out: &'o mut [u8]) -> Result<&'o [u8], PemError> {
    let (mut bits, mut held, mut pads, mut length) = (0u32, 0u32, 0u32, 0);
    for byte in text.iter().filter(|byte| !byte.is_ascii_whitespace()) {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => {
                pads += 1;
                continue;
            }
            _ => return Err(PemError::BadBase64),
        };
        if pads > 0 {
            return Err(PemError::BadBase64);
        }
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            let [.., low] = (bits >> held).to_be_bytes();
            *out.get_mut(length).ok_or(PemError::TooLong)? = low;
            length += 1;
            bits &= (1 << held) - 1;
        }
    }
    // The remaining bits must be 0, 4 or 2 zeroes, with 0, 2 or 1 padding characters.
    let padded = matches!((held, pads), (0, 0) | (4, 2) | (2, 1));
    if bits != 0 || !padded || length == 0 {
        return Err(PemError::BadBase64);
    }
    Ok(out.get(..length).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(label: &str, body: &str) -> Vec<u8> {
        format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n").into_bytes()
    }

    fn read(pem: &[u8]) -> Result<Vec<u8>, PemError> {
        certificate(pem, &mut [0; 64]).map(<[u8]>::to_vec)
    }

    #[test]
    fn finds_the_requested_block_among_others() {
        let mut all = pem("EC PARAMETERS", "AAAA");
        all.extend(pem("EC PRIVATE KEY", "Zm9v"));
        all.extend(pem("CERTIFICATE", "Zm8="));
        all.extend(pem("CERTIFICATE", "Zg=="));
        assert_eq!(read(&all).unwrap(), b"fo");
        let mut out = [0; 8];
        assert_eq!(private_key(&all, &mut out), Ok((KeyKind::Sec1, &b"foo"[..])));
        let pkcs8 = pem("PRIVATE KEY", "Zm9v");
        assert_eq!(private_key(&pkcs8, &mut out), Ok((KeyKind::Pkcs8, &b"foo"[..])));
    }

    #[test]
    fn rejects_invalid_blocks() {
        assert_eq!(read(b""), Err(PemError::Missing));
        assert_eq!(read(&pem("PRIVATE KEY", "Zm9v")), Err(PemError::Missing));
        let mixed = b"-----BEGIN CERTIFICATE-----\nZm9v\n-----END PRIVATE KEY-----\n";
        for unended in [&b"-----BEGIN CERTIFICATE-----\nZm9v"[..], mixed] {
            assert_eq!(read(unended), Err(PemError::Unended));
        }
        for bad in ["", "Zg", "Zg=", "Zg==Zg==", "Zh==", "Z", "Zm9v====", "Zm*v"] {
            assert_eq!(read(&pem("CERTIFICATE", bad)), Err(PemError::BadBase64), "{bad}");
        }
        // RFC 7468 forbids headers, which an encrypted key has.
        let encrypted = pem("PRIVATE KEY", "Proc-Type: 4,ENCRYPTED\n\nZm9v");
        assert_eq!(private_key(&encrypted, &mut [0; 64]), Err(PemError::BadBase64));
        let whole = pem("CERTIFICATE", "Zm9vYmFy");
        for cut in 0..whole.len() - 1 {
            assert!(read(&whole[..cut]).is_err(), "cut at {cut}");
        }
    }
    #[test]
    fn limits_apply_to_the_byte() {
        let text = pem("CERTIFICATE", &"AAAA".repeat(21));
        for (length, room, fits) in [
            (text.len(), 63, true),
            (text.len(), 62, false),
            (MAX_PEM, 63, true),
            (MAX_PEM + 1, 63, false),
        ] {
            let mut text = text.clone();
            text.resize(length, b'\n');
            let expected = if fits { Ok(63) } else { Err(PemError::TooLong) };
            assert_eq!(certificate(&text, &mut vec![0; room]).map(<[u8]>::len), expected);
        }
    }
}
