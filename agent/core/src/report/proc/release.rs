//! `/etc/os-release` (os-release(5)) and `/etc/hosts` (hosts(5)).

use alloc::vec::Vec;

use super::words;

/// Returns the value of variable `name`, if the line assigns it in shell syntax, with or without
/// quotes.
pub fn variable(line: &[u8], name: &str) -> Option<Vec<u8>> {
    let value = line.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?.trim_ascii();
    let inner = |quote: &[u8]| value.strip_prefix(quote)?.strip_suffix(quote);
    if let Some(plain) = inner(b"'") {
        return Some(plain.to_vec());
    }
    let mut out = Vec::new();
    let mut rest = inner(b"\"").unwrap_or(value).iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'\\' => out.extend(rest.next()),
            _ => out.push(*byte),
        }
    }
    Some(out)
}

/// Returns the first name on a line of `/etc/hosts` if `host` is among its names, like `hostname
/// -f`.
pub fn full_name<'l>(line: &'l [u8], host: &[u8]) -> Option<&'l [u8]> {
    let line = line.split(|byte| *byte == b'#').next()?;
    let mut names = words(line).skip(1);
    let first = names.next()?;
    (first == host || names.any(|name| name == host)).then_some(first)
}
