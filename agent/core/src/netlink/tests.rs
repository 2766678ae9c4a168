use super::*;
use std::vec::Vec;

/// Builds a message with attributes as the kernel does.
fn message(kind: u16, body: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut out = Vec::from([0; 16]);
    out.extend_from_slice(body);
    for (kind, value) in attributes {
        out.extend_from_slice(&u16::try_from(4 + value.len()).unwrap().to_ne_bytes());
        out.extend_from_slice(&kind.to_ne_bytes());
        out.extend_from_slice(value);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    let length = u32::try_from(out.len()).unwrap();
    out[..4].copy_from_slice(&length.to_ne_bytes());
    out[4..6].copy_from_slice(&kind.to_ne_bytes());
    out
}

#[test]
fn returns_the_errno_of_an_acknowledgement() {
    let errno = message(2, &(-17i32).to_ne_bytes(), &[]);
    assert_eq!(replies(&errno).collect::<Vec<_>>(), [Reply::Verdict(17)]);
}

#[test]
fn writes_requests_in_rtnetlink_format() {
    let name = change(7, Change::Name("eth0"));
    let mut expected = Vec::from([0; 16]);
    expected[..8].copy_from_slice(&[44, 0, 0, 0, 19, 0, 5, 0]);
    expected.extend([0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend(b"\x09\0\x03\0eth0\0\0\0\0");
    // The expected bytes are little-endian; netlink uses native order.
    if cfg!(target_endian = "little") {
        assert_eq!(name.as_slice(), expected);
    }
    assert_eq!(dump(Table::Links).len(), 32);
    assert_eq!(dump(Table::Addresses).len(), 24);
}
