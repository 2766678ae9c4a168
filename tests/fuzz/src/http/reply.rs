//! Written heads with arbitrary fields. Invariants: mote's reader and httparse read back the same
//! without extra lines, and exactly the fields that could end a line are refused.

use mote_core::http::head::{self, Framing};
use mote_core::http::reply::{Head, Length, Persistence, RequestLine, write_reply, write_request};

use crate::prelude::*;

fn is_name(text: &str) -> bool {
    let others = "!#$%&'*+-.^_`|~";
    !text.is_empty() && text.chars().all(|it| it.is_ascii_alphanumeric() || others.contains(it))
}

fn is_value(text: &str) -> bool {
    text.chars().all(|it| it == '\t' || !it.is_ascii_control())
}

/// Fields that frame the body or the connection.
fn is_special(name: &str) -> bool {
    let special = ["content-length", "transfer-encoding", "connection", "host", "expect"];
    special.iter().any(|one| name.eq_ignore_ascii_case(one))
}

fn extra<'i>(input: &mut Input<'i>) -> Vec<(&'i str, &'i str)> {
    let count = input.byte() % 4;
    (0..count).map(|_| (input.text(), input.text())).collect()
}

fn lines(written: &str) -> usize {
    written.matches('\n').count()
}

fn reply(input: &mut Input<'_>) {
    let length = match input.byte() % 4 {
        0 => Length::Known(input.long()),
        1 => Length::Chunked,
        2 => Length::UntilClose,
        _ => Length::None,
    };
    let persistence = [Persistence::Close, Persistence::Explicit, Persistence::Implied];
    let persistence = persistence[usize::from(input.byte() % 3)];
    let status = 200 + u16::from(input.byte());
    let content_type = input.byte().is_multiple_of(2).then(|| input.text());
    let extra = extra(input);
    let head = Head { status, content_type, length, persistence, extra: &extra };
    let mut written = String::new();
    let result = write_reply(&mut written, &head);
    let clean = content_type.is_none_or(is_value)
        && extra.iter().all(|(name, value)| is_name(name) && is_value(value));
    assert_eq!(result.is_ok(), clean);
    if !clean || extra.iter().any(|(name, _)| is_special(name)) || written.len() > limits::HEAD {
        return;
    }
    let (read, used) = head::response(written.as_bytes(), Method::Get).unwrap().unwrap();
    assert_eq!((read.status, used), (status, written.len()));
    let mut fields = read.headers.iter();
    if let Some(content_type) = content_type {
        let (_, value) = fields.next().unwrap();
        assert_eq!(value.trim_ascii(), content_type.as_bytes().trim_ascii());
    }
    let rest: Vec<_> = fields.filter(|(name, _)| !is_special(name)).collect();
    assert_eq!(rest.len(), extra.len());
    for ((name, value), (meant, text)) in rest.into_iter().zip(&extra) {
        assert_eq!((name, value.trim_ascii()), (*meant, text.as_bytes().trim_ascii()));
    }
    if !matches!(status, 204 | 304) {
        let framing = match length {
            Length::Known(0) => Framing::None,
            Length::Known(length) => Framing::Length(length),
            Length::Chunked => Framing::Chunked,
            Length::UntilClose | Length::None => Framing::UntilClose,
        };
        assert_eq!(read.framing, framing);
    }
    let has_length = matches!(length, Length::Known(_) | Length::Chunked);
    let is_said = length == Length::UntilClose || persistence != Persistence::Implied;
    let expected = 2
        + extra.len()
        + [content_type.is_some(), has_length, is_said].map(usize::from).iter().sum::<usize>();
    assert_eq!(lines(&written), expected, "{written:?}");
}

fn request(input: &mut Input<'_>) {
    let body = input.byte().is_multiple_of(2).then(|| input.long());
    let (method, target, host) = (input.text(), input.text(), input.text());
    let extra = extra(input);
    let close = input.byte().is_multiple_of(2);
    let line = RequestLine { method, target, host, body, close, extra: &extra };
    let mut written = String::new();
    let result = write_request(&mut written, &line);
    let is_target =
        target.starts_with('/') && !target.chars().any(|it| it == ' ' || it.is_ascii_control());
    let clean = is_name(method)
        && is_target
        && is_value(host)
        && extra.iter().all(|(name, value)| is_name(name) && is_value(value));
    assert_eq!(result.is_ok(), clean);
    if !clean || extra.iter().any(|(name, _)| is_special(name)) || written.len() > limits::HEAD {
        return;
    }
    let expected = 3 + extra.len() + usize::from(body.is_some()) + usize::from(close);
    assert_eq!(lines(&written), expected, "{written:?}");
    let Ok(Some((read, used))) = head::request(written.as_bytes()) else {
        // mote's reader is stricter about hosts and about targets beyond ASCII.
        return;
    };
    assert_eq!(used, written.len());
    assert_eq!(read.keep_alive, !close);
    let (path, query) = target.split_once('?').map_or((target, None), |(a, b)| (a, Some(b)));
    assert_eq!((read.path, read.query), (path, query));
}

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    if input.byte() % 2 == 0 { reply(&mut input) } else { request(&mut input) }
}
