//! systemd credentials as a host passes them to a VM: SMBIOS strings (DMTF DSP0134, type 11) such
//! as `io.systemd.credential:NAME=VALUE` or `io.systemd.credential.binary:NAME=BASE64`
//! (systemd.system-credentials(7)). Without systemd, nothing else reads them.

use alloc::vec;
use alloc::vec::Vec;
use core::str;

use crate::tls::pem::base64;

/// Maximum size of a value, in bytes.
pub const LONGEST: usize = 64 * 1024;
pub const KEYS: &str = "ssh.authorized_keys.root";
/// Credential with the host name for an image without one.
pub const HOSTNAME: &str = "system.hostname";

/// SMBIOS structure type "OEM Strings".
const STRINGS: u8 = 11;
/// Maximum length of a name, in bytes (Linux, `__NEW_UTS_LEN`).
const LONGEST_NAME: usize = 64;

/// Returns the first credential with this name in the firmware's table, or why it is invalid.
pub fn find(table: &[u8], name: &str) -> Option<Result<Vec<u8>, &'static str>> {
    let mut rest = table;
    while let [kind, length, ..] = rest {
        // The structure's strings end with an empty one. If it has none, two empty ones follow.
        let behind = rest.get(usize::from(*length).max(4)..)?;
        let end = behind.windows(2).position(|pair| pair == [0, 0])?;
        if *kind == STRINGS {
            let strings = behind.get(..end)?;
            for string in strings.split(|byte| *byte == 0) {
                if let Some((is_binary, value)) = value(string, name) {
                    return Some(decoded(is_binary, value).ok_or("too long, or not base64"));
                }
            }
        }
        rest = behind.get(end + 2..)?;
    }
    None
}

/// Returns the value of a string that is the credential with this name, and whether it is base64.
fn value<'s>(string: &'s [u8], name: &str) -> Option<(bool, &'s [u8])> {
    let rest = string.strip_prefix(b"io.systemd.credential")?;
    let binary = rest.strip_prefix(b".binary");
    let rest = binary.unwrap_or(rest).strip_prefix(b":")?.strip_prefix(name.as_bytes())?;
    Some((binary.is_some(), rest.strip_prefix(b"=")?))
}

fn decoded(is_binary: bool, value: &[u8]) -> Option<Vec<u8>> {
    if !is_binary {
        return (value.len() <= LONGEST).then(|| value.into());
    }
    let mut out = vec![0; value.len().min(LONGEST)];
    let length = base64(value, &mut out).ok()?.len();
    out.truncate(length);
    Some(out)
}

pub fn host_name(value: &[u8]) -> Option<&str> {
    let name = str::from_utf8(value).ok()?.trim_ascii_end();
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    let begins = name.bytes().next()?.is_ascii_alphanumeric();
    (begins && name.len() <= LONGEST_NAME && name.bytes().all(is_good)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a structure with these strings, as QEMU does.
    fn structure(kind: u8, strings: &[&str]) -> Vec<u8> {
        let mut out = vec![kind, 5, 0, 0x0e, 0];
        for string in strings {
            out.extend_from_slice(string.as_bytes());
            out.push(0);
        }
        out.resize(out.len() + if strings.is_empty() { 2 } else { 1 }, 0);
        out
    }

    fn table() -> Vec<u8> {
        [
            structure(1, &["io.systemd.credential:system.hostname=of another kind"]),
            structure(32, &[]),
            structure(
                11,
                &[
                    "a=b",
                    "io.systemd.credential:system.hostname=web1",
                    "io.systemd.credential:system.hostname=second",
                    "io.systemd.credential.binary:ssh.authorized_keys.root=c3NoLWVkMjU1MTkgQQo=",
                ],
            ),
            structure(127, &[]),
        ]
        .concat()
    }

    #[test]
    fn finds_credentials_by_name_in_any_table_of_their_type() {
        let table = table();
        assert_eq!(find(&table, HOSTNAME).unwrap().unwrap(), b"web1");
        assert_eq!(find(&table, KEYS).unwrap().unwrap(), b"ssh-ed25519 A\n");
        for other in ["system", "", "a", "hostname", "system.hostname=web1"] {
            assert_eq!(find(&table, other), None, "{other}");
        }
    }

    #[test]
    fn rejects_a_value_that_is_too_long_or_not_base64() {
        let of = |kind: &str, value: &str| {
            let string = [kind, KEYS, "=", value].concat();
            find(&structure(11, &[&string]), KEYS).unwrap().ok().map(|value| value.len())
        };
        let (plain, binary) = ("io.systemd.credential:", "io.systemd.credential.binary:");
        assert_eq!(of(plain, &"a".repeat(LONGEST)), Some(LONGEST));
        assert_eq!(of(plain, &"a".repeat(LONGEST + 1)), None);
        assert_eq!(of(binary, &"AAAA".repeat(LONGEST / 3)), Some(LONGEST / 3 * 3));
        assert_eq!(of(binary, &"AAAA".repeat(LONGEST / 3 + 1)), None);
        assert_eq!(of(binary, "not base64"), None);
        assert_eq!(of(plain, ""), Some(0));
    }

    #[test]
    fn recognises_host_names() {
        for good in ["web1", "a.example.org", "9-x\n"] {
            assert_eq!(host_name(good.as_bytes()), Some(good.trim_end()));
        }
        let long = "a".repeat(65);
        for bad in ["", "\n", "-a", ".a", "a b", "a\nb", "a_b", "\u{fc}", "a/b", long.as_str()] {
            assert_eq!(host_name(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(host_name(&[0xff]), None);
    }
}
