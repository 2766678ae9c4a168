//! HTTP heads. Invariants: an accepted head is within its limit, ends with an empty line and reads
//! the same without the rest; every prefix returns "more" or the same result; no field contains a
//! line end.

use mote_core::http::head::{self, Headers, Method};
use mote_core::limits;

/// The parsed head as text, and its length.
type Said = Result<Option<(String, usize)>, head::HeadError>;

fn fields(headers: &Headers<'_>) {
    for (name, value) in headers.iter() {
        assert!(
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':')
        );
        assert!(!value.iter().any(|byte| b"\r\n\0".contains(byte)));
        assert_eq!(headers.get(&name.to_ascii_uppercase()), headers.get(name));
    }
}

fn request(bytes: &[u8]) -> Said {
    Ok(head::request(bytes)?.map(|(request, length)| {
        assert!(request.path.starts_with('/'));
        assert!(request.path.bytes().all(|byte| byte > b' ' && byte != 0x7f));
        fields(&request.headers);
        (format!("{request:?}"), length)
    }))
}

fn response(bytes: &[u8], to: Method) -> Said {
    Ok(head::response(bytes, to)?.map(|(response, length)| {
        fields(&response.headers);
        (format!("{response:?}"), length)
    }))
}

fn holds(read: impl Fn(&[u8]) -> Said, input: &[u8], cut: usize) {
    let whole = read(input);
    if let Ok(Some((said, length))) = &whole {
        assert!(*length <= input.len().min(limits::HEAD));
        assert!(input[..*length].ends_with(b"\n"));
        assert_eq!(read(&input[..*length]), Ok(Some((said.clone(), *length))));
        assert_eq!(read(&input[..*length - 1]), Ok(None));
    }
    let prefix = read(&input[..cut]);
    assert!(prefix == Ok(None) || prefix == whole, "cut at {cut}: {prefix:?} but then {whole:?}");
}

pub fn run(data: &[u8]) {
    let [high, low, input @ ..] = data else { return };
    let cut = usize::from(u16::from_be_bytes([*high, *low])) % (input.len() + 1);
    holds(request, input, cut);
    holds(|bytes| response(bytes, Method::Get), input, cut);
    holds(|bytes| response(bytes, Method::Head), input, cut);
}
