//! Certificates, generated and arbitrary. Invariants: the key that was put in is found at any
//! length, is a complete element within the input, does not depend on what follows, and is not
//! found before its end.

use mote_core::tls::certificate::public_key;

use crate::prelude::*;

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap();
    let [high, low] = length.to_be_bytes();
    let head = match length {
        0..=127 => vec![tag, low],
        128..=255 => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    [&head, content].concat()
}

fn made_up(input: &mut Input<'_>) {
    let has_version = input.byte().is_multiple_of(2);
    let serial = element(2, input.bytes());
    let others: Vec<u8> = (0..4).flat_map(|_| element(0x30, input.bytes())).collect();
    let long = vec![7; usize::from(input.byte()) * 8];
    let key = element(0x30, &[input.bytes(), &long].concat());
    let version = if has_version { element(0xa0, &[2, 1, 2]) } else { Vec::new() };
    let signed =
        element(0x30, &[version, serial, others, key.clone(), element(0xa3, &[1])].concat());
    let der = element(0x30, &[signed, element(0x30, input.bytes())].concat());
    assert_eq!(public_key(&der), Some(&key[..]));
    // The end of the key, found independently.
    let end = der.windows(key.len()).position(|window| window == key).unwrap() + key.len();
    let cut = usize::try_from(input.short()).unwrap() % end;
    assert_eq!(public_key(&der[..cut]), None);
    // Try another outer type, and a length without an upper bound.
    for start in [[0x31, der[1]], [0x30, 0x80], [0x30, 0x83]] {
        assert_eq!(public_key(&[&start, &der[2..]].concat()), None, "{start:?}");
    }
}

pub fn run(data: &[u8]) {
    if let Some(key) = public_key(data) {
        assert!(data.as_ptr_range().contains(&key.as_ptr()) && key[0] == 0x30);
        let length = match key[1..] {
            [0x82, high, low, ..] => 4 + usize::from(u16::from_be_bytes([high, low])),
            [0x81, length, ..] => 3 + usize::from(length),
            [length, ..] => 2 + usize::from(length),
            [] => panic!("no length"),
        };
        assert_eq!(key.len(), length);
        assert_eq!(public_key(&[data, b"more"].concat()), Some(key));
    }
    made_up(&mut Input(data));
}
