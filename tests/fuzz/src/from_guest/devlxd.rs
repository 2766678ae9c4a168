//! Requests of guests, and the requests to the host made from them. Invariants: the target is the
//! guest's path byte for byte, it fits a head, hop-by-hop headers are dropped both ways, HEAD is
//! routed like GET, servers differ only as in P§5.2, and Ready reads back.

use mote_core::devlxd::exchange::{Event, Exchange, Next, typed};
use mote_core::devlxd::forward::{forwards, returns, write_target};
use mote_core::devlxd::ready::{Ready, ReadyState, write_state};
use mote_core::devlxd::route::{Ask, NoRoute, Route, route};
use mote_core::dial::Reply;
use mote_core::http::head;
use mote_core::http::reply::{RequestLine, write_request};
use mote_core::json::Value;

use crate::prelude::*;

fn routes(method: Method, path: &str) {
    let [incus, lxd, old] =
        [Flavour::Incus, Flavour::Lxd, Flavour::LxdOld].map(|flavour| route(flavour, method, path));
    let segments = segments(path);
    assert_eq!(incus == Err(NoRoute::Encoding), segments.is_none());
    assert_eq!(lxd == Err(NoRoute::Encoding), segments.is_none());
    // Only current LXD has the catch-all, which supports GET and HEAD.
    assert_ne!(lxd, Err(NoRoute::Path));
    for other in [incus, old] {
        if let (Ok(other), Ok(lxd)) = (other, lxd) {
            assert_eq!(other, lxd, "{path}");
        }
        assert!(other.is_err() || lxd.is_ok(), "{path}: {other:?}, but {lxd:?}");
    }
    if method == Method::Head {
        assert_eq!(lxd, route(Flavour::Lxd, Method::Get, path));
    }
    if incus == Ok(Route::Ask(Ask::ConfigValue)) {
        let key = &segments.unwrap()[2];
        assert!(key.starts_with(b"user.") || key.starts_with(b"cloud-init."), "{path}");
    }
    for error in [incus.err(), lxd.err(), old.err()].into_iter().flatten() {
        assert!((400..=501).contains(&error.reply().0));
    }
}

fn targets(flavour: Flavour, method: Method, path: &str, query: Option<&str>) {
    let Ok(Route::Ask(ask)) = route(flavour, method, path) else { return };
    let mut target = String::new();
    write_target(&mut target, ask, path, query).unwrap();
    let rest = target.strip_prefix(path).expect("the guest's path");
    match ask {
        Ask::VolumeList => assert!(rest.starts_with("?recursion=1")),
        Ask::Json | Ask::OperationWait => assert_eq!(rest.strip_prefix('?'), query),
        _ => assert_eq!(rest, ""),
    }
    let is_plain = |text: &str| text.bytes().all(|byte| byte > b' ' && byte != 0x7f);
    if path.starts_with('/') && is_plain(path) && query.is_none_or(is_plain) {
        let target = &target;
        let line =
            RequestLine { method: "GET", target, host: "h", body: None, close: false, extra: &[] };
        write_request(&mut String::new(), &line).unwrap();
    }
}

fn headers(name: &str, value: &[u8]) {
    let connection = ["connection", "host", "transfer-encoding", "content-length", "upgrade", "te"];
    if connection.iter().any(|one| name.eq_ignore_ascii_case(one)) {
        assert!(!forwards(Ask::ImageExport, name, value) && !forwards(Ask::Json, name, value));
        assert!(!returns(name));
    }
    if name.eq_ignore_ascii_case("authorization") && forwards(Ask::Json, name, value) {
        assert!(value[..7].eq_ignore_ascii_case(b"bearer "));
    }
    assert!(!forwards(Ask::Json, name, value) || forwards(Ask::ImageExport, name, value));
}

fn volumes(path: &str, body: &[u8]) {
    let Some(typed) = typed(path, body) else { return };
    let kind = typed.value().member("type").unwrap().raw();
    assert!(kind.len() >= 2 && !kind.contains('/'));
    let others = |value: Value<'_>| value.members().filter(|(name, _)| !name.is("type")).count();
    assert_eq!(others(typed.value()), others(Value::parse(body).unwrap()));
}

fn exchange(flavour: Flavour, path: &str, input: &mut Input<'_>) {
    let method = ["GET", "HEAD", "POST", "PATCH", "DELETE"][usize::from(input.byte()) % 5];
    let text = format!("{method} {path} HTTP/1.1\r\nHost: h\r\n\r\n");
    let Ok(Some((request, _))) = head::request(text.as_bytes()) else { return };
    let ready = Ready::default();
    let mut other = None;
    let mut exchange = Exchange::new(flavour, &ready, &request, input.text().as_bytes());
    let mut event = Event::Request { is_enabled: true };
    let (mut calls, mut was_stored) = (0, false);
    for _ in 0..64 {
        let byte = input.byte();
        let before = ready.get();
        let next = exchange.next(event);
        assert!(ready.get() == before || matches!(next, Next::Store { .. }), "{next:?}");
        event = match next {
            Next::Answer(answer) => {
                assert!(answer.status >= 200);
                break;
            }
            Next::Listen => break,
            Next::Obtain(quota) if byte.is_multiple_of(8) => Event::Refused(quota),
            Next::Obtain(quota) => {
                other = (byte % 8 == 1).then(|| ready.exclusive()).flatten().or(other);
                Event::Granted(quota)
            }
            Next::Wait => {
                assert!(other.take().is_some(), "no process holds the lock");
                Event::Released
            }
            Next::Store { state, .. } => {
                assert_eq!(ready.get(), Some(state));
                was_stored = true;
                Event::Stored
            }
            Next::Call { call, .. } | Next::Stream(call) => {
                calls += 1;
                assert!(calls <= 2, "{path}");
                assert!(call.target.starts_with(request.path));
                let sets = call.method == "PATCH" && request.path == "/1.0";
                assert!(!sets || other.is_none() && ready.is_held());
                let (status, etag) = ([200, 403][usize::from(byte & 1)], None);
                let (body, is_whole) = (input.text().as_bytes().to_vec(), byte & 2 == 0);
                let reply = Reply { status, etag, body, is_whole };
                match byte & 4 {
                    0 => Event::Reply { reply, may_be_long: calls > 1 },
                    _ => Event::Failed(String::new()),
                }
            }
        };
    }
    drop((exchange, other));
    assert!(!ready.is_held() && was_stored == ready.get().is_some());
}

fn ready(file: &[u8]) {
    let state = Ready::restore(file).get();
    assert_eq!(state, ReadyState::parse(text(file.trim_ascii())).filter(|_| file.is_ascii()));
    if let Some(state) = state {
        let body = Document::new(0, |json| write_state(json, state.name()));
        assert!(body.value().member("state").unwrap().is(state.name()));
        assert_eq!(Ready::restore(state.name().as_bytes()).get(), Some(state));
    }
}

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let (flavour, method) = (input.flavour(), METHODS[usize::from(input.byte() % 8)]);
    let path = input.text();
    let query = (input.byte() % 2 == 0).then(|| input.text());
    routes(method, path);
    targets(flavour, method, path, query);
    headers(path, input.0);
    volumes(path, input.0);
    ready(input.0);
    exchange(flavour, path, &mut input);
}
