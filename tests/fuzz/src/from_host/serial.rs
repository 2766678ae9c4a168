//! The serial line. Invariants: lines are split at newlines, without carriage returns and within
//! the limit; another parser reads CONNECT lines the same; cuts do not change the state machine.

use mote_core::status::LineBuf;
use mote_core::status::{Action, Intervals, Status};
use mote_core::status::{Connect, RefusedLine};

use crate::prelude::*;

fn expected(line: &[u8]) -> Option<&[u8]> {
    (line.len() <= limits::LINE).then(|| line.strip_suffix(b"\r").unwrap_or(line))
}

/// Parses `CID:PORT` independently; `Err(true)` for an address that is not a host's.
fn address(text: &str) -> Result<(u32, u32), bool> {
    let parts: Vec<&str> = text.splitn(2, ':').collect();
    let [cid, port] = parts[..] else { return Err(false) };
    let number = |text: &str| -> Option<u32> {
        let mut value = 0u64;
        for digit in text.chars() {
            value = (value * 10 + u64::from(digit.to_digit(10)?)).min(1 << 40);
        }
        (!text.is_empty()).then(|| u32::try_from(value).ok()).flatten()
    };
    let (cid, port) = number(cid).zip(number(port)).ok_or(false)?;
    if cid < 2 || cid == u32::MAX || port == 0 || port == u32::MAX {
        return Err(true);
    }
    Ok((cid, port))
}

fn connect(line: &[u8]) {
    let ours = Connect::parse(line);
    let Some(rest) = line.strip_prefix(b"CONNECT ") else { return assert_eq!(ours, Ok(None)) };
    let Ok(rest) = core::str::from_utf8(rest) else {
        return assert_eq!(ours, Err(RefusedLine::Malformed));
    };
    let mut words = rest.splitn(2, ' ');
    let place = address(words.next().unwrap_or(""));
    let print = words.next();
    let is_print =
        print.is_none_or(|hex| hex.len() == 64 && hex.bytes().all(|it| it.is_ascii_hexdigit()));
    match (is_print, place) {
        (false, _) | (true, Err(false)) => assert_eq!(ours, Err(RefusedLine::Malformed)),
        (true, Err(true)) => assert_eq!(ours, Err(RefusedLine::BadAddress)),
        (true, Ok((cid, port))) => {
            let read = ours.unwrap().unwrap();
            assert_eq!(read.address, HostAddress { cid, port });
            let hex = read.fingerprint.map(|all| all.map(|byte| format!("{byte:02x}")).concat());
            assert_eq!(hex, print.map(str::to_ascii_lowercase));
        }
    }
}

/// Returns the actions of a state machine that gets the bytes in pieces of this size.
fn machine(data: &[u8], size: usize) -> Vec<Action> {
    let now = Uptime::from_millis(5000);
    let mut status = Status::new(now, Intervals::default());
    while status.poll(now).is_some() {}
    data.chunks(size).for_each(|piece| status.received(now, piece));
    core::iter::from_fn(|| status.poll(now)).take(64).collect()
}

pub fn run(data: &[u8]) {
    let [size, data @ ..] = data else { return };
    let mut buf = LineBuf::default();
    let lines: Vec<_> = data.iter().filter_map(|byte| buf.push(*byte)).collect();
    let mut parts: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    parts.pop();
    let expected: Vec<&[u8]> = parts.into_iter().filter_map(expected).collect();
    assert_eq!(lines, expected);
    lines.iter().for_each(|line| connect(line));
    let whole = machine(data, data.len().max(1));
    assert_eq!(machine(data, usize::from(*size).max(1)), whole, "pieces of {size}");
}
