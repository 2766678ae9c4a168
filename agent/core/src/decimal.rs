//! Numbers in untrusted text.

/// Parses a decimal number that fits `T`: digits only. [`str::parse`] also accepts `+80`.
pub fn digits<T: TryFrom<u64>>(text: impl AsRef<[u8]>) -> Option<T> {
    T::try_from(number(text.as_ref())?).ok()
}

fn number(text: &[u8]) -> Option<u64> {
    let digit = |byte: &u8| char::from(*byte).to_digit(10).map(u64::from);
    let next = |value: u64, byte| value.checked_mul(10)?.checked_add(digit(byte)?);
    if text.is_empty() { None } else { text.iter().try_fold(0, next) }
}
