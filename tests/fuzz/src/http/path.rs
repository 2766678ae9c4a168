//! Paths and queries. Invariants: another decoder finds the same segments, an encoded slash is not
//! a separator, the first value of a repeated parameter wins, and the routes match a separately
//! written table of P§4's endpoints.

use mote_core::hostapi::route::{NoRoute, Route, operation, route};
use mote_core::http::path::Segments;
use mote_core::http::query;

use crate::prelude::*;

/// Upper bound of stored segments.
const KEPT: usize = 9;

fn split(path: &str) {
    let (ours, theirs) = (Segments::split(path), segments(path));
    let (Some(ours), Some(theirs)) = (&ours, &theirs) else {
        return assert!(ours.is_none() && theirs.is_none(), "{ours:?} {theirs:?}");
    };
    assert_eq!(ours.count(), theirs.len());
    for (index, segment) in theirs.iter().enumerate().take(KEPT) {
        assert_eq!(decoded(ours.raw(index)).as_ref(), Some(segment));
        assert!(!ours.raw(index).contains('/'));
        if let Ok(word) = core::str::from_utf8(segment) {
            assert!(ours.is(index, word) && ours.starts(index, word));
            assert!(
                !ours.is(index, &format!("{word}x")) && !ours.starts(index, &format!("{word}x"))
            );
            let half = &word[..word.floor_char_boundary(word.len() / 2)];
            assert!(ours.starts(index, half));
        }
    }
}

/// The endpoints of P§4, each with its methods.
fn known(flavour: Flavour, path: &[&[u8]]) -> Option<Vec<(Method, Route)>> {
    use Method::{Delete, Get, Post, Put};
    let only = |method, route| Some(vec![(method, route)]);
    match path {
        [] => only(Get, Route::Index),
        [b"1.0"] => Some(vec![(Get, Route::Info), (Put, Route::Connect)]),
        [b"1.0", b"events"] => Some(vec![(Get, Route::Events), (Post, Route::PostEvent)]),
        [b"1.0", b"exec"] => only(Post, Route::Exec),
        [b"1.0", b"metrics"] => only(Get, Route::Metrics),
        [b"1.0", b"operations"] => only(Get, Route::Operations),
        [b"1.0", b"operations", id] if !id.is_empty() => {
            Some(vec![(Get, Route::Operation), (Delete, Route::CancelOperation)])
        }
        [b"1.0", b"operations", _, b"wait"] => only(Get, Route::WaitOperation),
        [b"1.0", b"operations", _, b"websocket"] => only(Get, Route::OperationSocket),
        [b"1.0", b"port-forward"] if flavour == Flavour::Incus => only(Post, Route::PortForward),
        [b"1.0", b"sftp"] => only(Get, Route::Sftp),
        [b"1.0", b"state"] => only(Get, Route::State),
        _ => None,
    }
}

fn routes(flavour: Flavour, method: Method, path: &str) {
    let expected = match segments(path) {
        None => Err(NoRoute::Encoding),
        Some(_) if matches!(method, Method::Head | Method::Options | Method::Other) => {
            Err(NoRoute::Verb)
        }
        Some(all) => match known(flavour, &all.iter().map(Vec::as_slice).collect::<Vec<_>>()) {
            Some(methods) => methods
                .into_iter()
                .find_map(|(one, route)| (one == method).then_some(route))
                .ok_or(NoRoute::Method),
            None if flavour == Flavour::Lxd => Ok(Route::Index),
            None => Err(NoRoute::Path),
        },
    };
    assert_eq!(route(flavour, method, path), expected, "{path}");
    assert!(!operation(path).contains('/'));
}

fn queries(text: &str) {
    let Some((key, text)) = text.split_once('?') else { return };
    let mut pairs = text.split('&').map(|pair| pair.split_at(pair.find('=').unwrap_or(pair.len())));
    let value = pairs.find(|(name, _)| *name == key).map(|(_, value)| value);
    let ours = query(Some(text), key);
    // A key that contains `=` has no effect.
    if !key.contains(['=', '&']) {
        assert_eq!(ours, value.map(|value| value.strip_prefix('=').unwrap_or(value)));
    }
}

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let (flavour, method) = (input.flavour(), METHODS[usize::from(input.byte() % 8)]);
    let path = text(input.0);
    split(path);
    routes(flavour, method, path);
    queries(path);
}
