use super::*;
use std::net::IpAddr;
use std::vec::Vec as List;

use proptest::prelude::*;

/// Builds a message with attributes as the kernel does.
fn message(kind: u16, body: &[u8], attributes: &[(u16, &[u8])]) -> List<u8> {
    let mut out = List::from([0; 16]);
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

fn link_message() -> List<u8> {
    let mut body = [0; 16];
    body[4..8].copy_from_slice(&7u32.to_ne_bytes());
    body[8..12].copy_from_slice(&(UP | BROADCAST).to_ne_bytes());
    let stats: List<u8> = (1u64..=24).flat_map(u64::to_ne_bytes).collect();
    let mtu = 1400u32.to_ne_bytes();
    let mac = [0, 0x16, 0x3e, 1, 2, 3];
    message(16, &body, &[(3, b"eth0\0"), (4, &mtu), (1, &mac), (23, &stats), (54 | 0x4000, &mac)])
}

fn address_message() -> List<u8> {
    let body = [2, 24, 0, 0, 7, 0, 0, 0];
    message(20, &body, &[(1, &[192, 0, 2, 9]), (2, &[192, 0, 2, 1])])
}

#[test]
fn reads_links_and_addresses_of_a_datagram() {
    let mut datagram = link_message();
    datagram.extend(address_message());
    datagram.extend(message(3, &[0; 4], &[]));
    let replies: List<_> = replies(&datagram).collect();
    let [Reply::Link(link), Reply::Address(address), Reply::Done] = replies[..] else {
        panic!("{replies:?}");
    };
    assert_eq!((link.index, link.flags, link.name, link.mtu), (7, 3, &b"eth0"[..], 1400));
    assert_eq!((link.hardware, link.permanent), (&[0, 0x16, 0x3e, 1, 2, 3][..], link.hardware));
    let received = Traffic { packets: 1, bytes: 3, errors: 5, dropped: 7 };
    let sent = Traffic { packets: 2, bytes: 4, errors: 6, dropped: 8 };
    assert_eq!(link.counters, Counters { received, sent });
    // Our address, not the peer's.
    let ours = IpAddr::from([192, 0, 2, 1]);
    assert_eq!(address, Address { index: 7, prefix: 24, address: ours });
}

#[test]
fn returns_the_errno_of_an_acknowledgement() {
    let errno = message(2, &(-17i32).to_ne_bytes(), &[]);
    assert_eq!(replies(&errno).collect::<List<_>>(), [Reply::Verdict(17)]);
}

#[test]
fn writes_requests_in_rtnetlink_format() {
    let name = change(7, Change::Name("eth0"));
    let mut expected = List::from([0; 16]);
    expected[..8].copy_from_slice(&[44, 0, 0, 0, 19, 0, 5, 0]);
    expected.extend([0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend(b"\x09\0\x03\0eth0\0\0\0\0");
    // The expected bytes are little-endian; netlink uses native order.
    if cfg!(target_endian = "little") {
        assert_eq!(name.as_slice(), expected);
    }
    for length in 0..=15 {
        let request = change(1, Change::Name(&"x".repeat(length)));
        assert!(request.len().is_multiple_of(4) && request.len() >= 37 + length);
    }
    assert_eq!(dump(Table::Links).len(), 32);
    assert_eq!(dump(Table::Addresses).len(), 24);
}

proptest! {
    #[test]
    fn a_truncated_datagram_adds_nothing_and_causes_no_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        cut in 0usize..400,
        at in 0usize..400,
    ) {
        replies(&bytes).for_each(drop);
        let mut datagram = link_message();
        datagram.extend(address_message());
        let whole = replies(&datagram).count();
        prop_assert!(replies(&datagram[..cut.min(datagram.len())]).count() <= whole);
        let start = at.min(datagram.len());
        let end = (start + bytes.len()).min(datagram.len());
        datagram[start..end].copy_from_slice(&bytes[..end - start]);
        replies(&datagram).for_each(drop);
    }
}
