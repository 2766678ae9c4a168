//! Computes the mount tag of a hot-plugged device whose event has none (P§1.8). The host replaces a
//! name that is too long for a tag with a hash.

use alloc::string::String;

use crate::base64::base64;
use crate::flavour::Flavour;

/// SHA-256, provided by the shell.
pub type Hash = fn(&[u8]) -> [u8; 32];

/// Longest tag of LXD, bytes with its prefix.
const LXD: usize = 31;
/// Longest name in a tag of Incus, bytes without the prefix. Its own agent does not hash names
/// (P§9.12).
const INCUS: usize = 30;
pub(super) fn tag(flavour: Flavour, device: &str, hash: Hash) -> String {
    let (prefix, name, most) = match flavour {
        Flavour::Incus => ("incus_", device.into(), INCUS),
        Flavour::Lxd | Flavour::LxdOld => {
            let prefix = "lxd_";
            (prefix, device.replace("-", "--").replace("/", "-"), LXD - prefix.len())
        }
    };
    let mut out = String::from(prefix);
    if name.len() > most {
        // URL-safe (RFC 4648 §5).
        out.extend(base64(&hash(name.as_bytes()), ['-', '_']).take(most));
    } else {
        out.push_str(&name);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not a hash at all, but bytes whose base64 is known.
    fn known(_: &[u8]) -> [u8; 32] {
        *b"The quick brown fox jumps over t"
    }

    #[test]
    fn hashes_long_names_beyond_the_hosts_limits() {
        let base64 = "VGhlIHF1aWNrIGJyb3duIGZveCBqdW1wcyBvdmVyIHQ";
        for (flavour, prefix, most) in [
            (Flavour::Lxd, "lxd_", 27),
            (Flavour::LxdOld, "lxd_", 27),
            (Flavour::Incus, "incus_", 30),
        ] {
            let fits = "n".repeat(most);
            assert_eq!(tag(flavour, &fits, known), format!("{prefix}{fits}"));
            let hashed = format!("{prefix}{}", &base64[..most]);
            assert_eq!(tag(flavour, &"n".repeat(most + 1), known), hashed);
        }
        assert_eq!(tag(Flavour::Lxd, "my-disk/x", known), "lxd_my--disk-x");
        assert_eq!(tag(Flavour::Incus, "my-disk/x", known), "incus_my-disk/x");
        // The limit is for the encoded name.
        assert_eq!(tag(Flavour::Lxd, &"-".repeat(14), known).len(), 31);
        assert!(tag(Flavour::Lxd, &"-".repeat(14), known).starts_with("lxd_VGhl"));
    }
}
