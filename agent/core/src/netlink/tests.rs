use super::*;
use std::vec::Vec;

#[test]
fn returns_the_errno_of_an_acknowledgement() {
    let [length, kind] = [20, 2].map(u32::to_ne_bytes);
    let kind = if cfg!(target_endian = "little") { kind } else { [0, 2, 0, 0] };
    let errno = [length, kind, [0; 4], [0; 4], (-17i32).to_ne_bytes()].concat();
    assert_eq!(replies(&errno).collect::<Vec<_>>(), [Reply::Verdict(17)]);
}

#[test]
fn writes_requests_in_rtnetlink_format() {
    let name = change(7, &Change::Name("eth0".try_into().unwrap()));
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
