//! rtnetlink messages, generated like the kernel's and arbitrary. Invariants: messages read back, a
//! cut datagram has the first messages of the whole one, and requests are well-formed and name
//! their link.

use core::net::IpAddr;

use mote_core::netlink::{self, Change, Reply};

use crate::prelude::*;

fn message(kind: u16, body: &[u8], attributes: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut out = vec![0; 16];
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

fn link(input: &mut Input<'_>) -> Vec<u8> {
    let (index, flags, mtu) = (input.word(), input.word(), input.word());
    let (hardware, name) = (input.bytes().to_vec(), input.bytes());
    let name = name.split(|byte| *byte == 0).next().unwrap().to_vec();
    let numbers: [u64; 8] = core::array::from_fn(|_| input.long());
    let body = [[0; 4], index.to_ne_bytes(), flags.to_ne_bytes(), [0; 4]].concat();
    let attributes = [
        (3, [&name[..], b"\0"].concat()),
        (1, hardware.clone()),
        (4, mtu.to_ne_bytes().to_vec()),
        (23, numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()),
        (54 | 0x4000, hardware.clone()),
    ];
    let message = message(16, &body, &attributes);
    let replies: Vec<_> = netlink::replies(&message).collect();
    match replies[..] {
        [Reply::Other] => assert!(name.is_empty()),
        [Reply::Link(link)] => {
            assert_eq!((link.index, link.flags, link.mtu), (index, flags, mtu));
            assert_eq!(
                (link.name, link.hardware, link.permanent),
                (&name[..], &hardware[..], &hardware[..])
            );
            let (received, sent) = (link.counters.received, link.counters.sent);
            let read = [
                received.packets,
                sent.packets,
                received.bytes,
                sent.bytes,
                received.errors,
                sent.errors,
                received.dropped,
                sent.dropped,
            ];
            assert_eq!(read, numbers);
        }
        ref other => panic!("{other:?}"),
    }
    message
}

fn address(input: &mut Input<'_>) -> Vec<u8> {
    let (index, prefix) = (input.word(), input.byte());
    let body = [[2, prefix, 0, 0], index.to_ne_bytes()].concat();
    let (ours, theirs) = if input.byte().is_multiple_of(2) {
        (IpAddr::from(input.array::<4>()), input.array::<4>().to_vec())
    } else {
        (IpAddr::from(input.array::<16>()), input.array::<16>().to_vec())
    };
    let bytes = match ours {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    // A message has the peer's address and ours, or only ours.
    let both = [(1, theirs), (2, bytes.clone())];
    let alone = [(1, bytes)];
    let message = message(20, &body, if input.byte().is_multiple_of(2) { &both } else { &alone });
    let replies: Vec<_> = netlink::replies(&message).collect();
    let [Reply::Address(read)] = replies[..] else { panic!("{replies:?}") };
    assert_eq!((read.index, read.prefix, read.address), (index, prefix, ours));
    message
}

fn request(input: &mut Input<'_>) {
    let (index, mtu, name) = (input.word(), input.word(), input.text());
    let name = &name[..name.floor_char_boundary(15)];
    let named = Change::Name(name.try_into().unwrap());
    let changes = [Change::Down, Change::Up, Change::Mtu(mtu), named.clone()];
    for change in changes {
        let request = netlink::change(index, &change);
        assert_eq!(request[..4], u32::try_from(request.len()).unwrap().to_ne_bytes());
        assert!(request.len().is_multiple_of(4));
        assert_eq!(request[20..24], index.to_ne_bytes());
    }
    let named = netlink::change(index, &named);
    assert_eq!(&named[36..36 + name.len()], name.as_bytes());
    assert_eq!(named[36 + name.len()], 0);
}

/// Checks that a truncated datagram shows the first messages of the whole one.
fn cut(datagram: &[u8], at: usize) {
    let whole: Vec<_> = netlink::replies(datagram).collect();
    let part: Vec<_> = netlink::replies(&datagram[..at % (datagram.len() + 1)]).collect();
    assert!(whole.starts_with(&part), "{part:?} of {whole:?}");
    assert!(whole.len() <= datagram.len() / 16);
}

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let at = usize::try_from(input.short()).unwrap();
    cut(input.0, at);
    let mut datagram = Vec::new();
    for _ in 0..input.byte() % 4 {
        datagram.extend(if input.byte() % 2 == 0 { link(&mut input) } else { address(&mut input) });
    }
    cut(&datagram, at);
    request(&mut input);
}
