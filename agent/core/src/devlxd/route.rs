//! Finds the [`Route`] of a guest's request. Paths are in `endpoint` (and `lxd_only`), their
//! methods in `by_method`. Source: P§5.2 (unknown paths and methods), P§5.3 (endpoints).
//!
//! A path is split before decoding, so an encoded `/` in a key never separates segments. The
//! forwarded path is the client's, byte for byte.

use crate::flavour::Flavour;
use crate::http::head::Method;
use crate::http::path::Segments;

/// Destination of a guest's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// `GET /`: the list of API versions, answered without the host.
    Index,
    /// `GET /1.0/events`: our own event stream, not proxied.
    Events,
    /// A request that the host must answer.
    Ask(Ask),
}

/// A request to the host, by how it is forwarded and how its answer is presented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// `GET /1.0`.
    Info,
    /// `PATCH /1.0`: Ready or Started.
    SetState,
    /// `GET /1.0/config`.
    ConfigKeys,
    /// `GET /1.0/config/{key}`: the bare value.
    ConfigValue,
    /// `GET /1.0/meta-data`: bare text; the connection to the host is retried for longer (P§5.3).
    MetaData,
    /// `GET /1.0/images/{fingerprint}/export`: a stream of any size.
    ImageExport,
    /// A list of volumes or snapshots: always requested with `recursion=1` (P§5.3).
    VolumeList,
    /// `GET /1.0/operations/{id}/wait`: may take as long as the client wants.
    OperationWait,
    /// Any other endpoint: JSON passes through in both directions.
    Json,
}

impl Ask {
    /// All kinds of requests.
    #[rustfmt::skip] // several in a line
    pub const ALL: [Self; 9] = [
        Self::Info, Self::SetState, Self::ConfigKeys, Self::ConfigValue, Self::MetaData,
        Self::ImageExport, Self::VolumeList, Self::OperationWait, Self::Json,
    ];

    /// Returns whether the answer is presented as bare text rather than JSON (P§5.2).
    pub fn is_raw(self) -> bool {
        match self {
            Self::SetState | Self::ConfigValue | Self::MetaData => true,
            Self::Info
            | Self::ConfigKeys
            | Self::ImageExport
            | Self::VolumeList
            | Self::OperationWait
            | Self::Json => false,
        }
    }

    /// Returns whether the answer may take minutes although neither host nor guest is at fault.
    pub fn takes_long(self) -> bool {
        match self {
            Self::ImageExport | Self::OperationWait => true,
            Self::Info
            | Self::SetState
            | Self::ConfigKeys
            | Self::ConfigValue
            | Self::MetaData
            | Self::VolumeList
            | Self::Json => false,
        }
    }
}

/// Reason why a request has no route; decides the status (P§5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoute {
    /// An unknown path on Incus and old LXD: 404. On current LXD the catch-all is [`Route::Index`].
    Path,
    /// A known path without a handler for the method: 501.
    Method,
    /// An unknown method, or OPTIONS: 404.
    Verb,
    /// Broken percent-encoding: 400.
    Encoding,
    /// A configuration key that guests may not read: 403.
    Key,
}

impl NoRoute {
    pub fn reply(self) -> (u16, &'static str) {
        match self {
            Self::Path => (404, "404 page not found"),
            Self::Method => (501, "Not Implemented"),
            Self::Verb => (404, "Method not found"),
            Self::Encoding => (400, "Invalid percent-encoding in path"),
            Self::Key => (403, "not authorized"),
        }
    }
}

/// An endpoint, by its path alone.
#[derive(Clone, Copy)]
enum Endpoint {
    Index,
    Info,
    ConfigKeys,
    ConfigValue,
    MetaData,
    Events,
    Devices,
    ImageExport,
    UbuntuPro,
    UbuntuProToken,
    Instance,
    Operation,
    OperationWait,
    Pool,
    Volumes,
    Volume,
    Snapshots,
    Snapshot,
}

/// Finds the route of a request. Errors: [`NoRoute`]; its [`NoRoute::reply`] is the answer.
pub fn route(flavour: Flavour, method: Method, path: &str) -> Result<Route, NoRoute> {
    let segments = Segments::split(path).map_err(|_| NoRoute::Encoding)?;
    let endpoint = match endpoint(flavour, &segments) {
        Some(endpoint) => endpoint,
        None => match flavour {
            // Current LXD's mux has a catch-all at `/` (P§5.2). On old LXD the agent must not have
            // one: old clients do not encode a `/` in a key, and would take the index for the key's
            // value.
            Flavour::Lxd => Endpoint::Index,
            Flavour::LxdOld | Flavour::Incus => return Err(NoRoute::Path),
        },
    };
    let method = match method {
        // HEAD is answered as GET, without the body.
        Method::Head => Method::Get,
        Method::Options | Method::Other => return Err(NoRoute::Verb),
        Method::Get | Method::Post | Method::Put | Method::Patch | Method::Delete => method,
    };
    if matches!(endpoint, Endpoint::ConfigValue) && !key_allowed(flavour, &segments) {
        return Err(NoRoute::Key);
    }
    by_method(method, endpoint).ok_or(NoRoute::Method)
}

fn endpoint(flavour: Flavour, segments: &Segments<'_>) -> Option<Endpoint> {
    let is = |index: usize, word: &str| segments.is(index, word);
    if segments.count() == 0 {
        return Some(Endpoint::Index);
    }
    if !is(0, "1.0") {
        return None;
    }
    match segments.count() {
        1 => Some(Endpoint::Info),
        2 if is(1, "config") => Some(Endpoint::ConfigKeys),
        2 if is(1, "meta-data") => Some(Endpoint::MetaData),
        2 if is(1, "events") => Some(Endpoint::Events),
        2 if is(1, "devices") => Some(Endpoint::Devices),
        3 if is(1, "config") => Some(Endpoint::ConfigValue),
        // Incus hosts have it although their Go agent does not forward it.
        4 if is(1, "images") && is(3, "export") => Some(Endpoint::ImageExport),
        _ => match flavour {
            Flavour::Lxd => lxd_only(segments),
            Flavour::LxdOld | Flavour::Incus => None,
        },
    }
}

/// Returns the endpoint of a path that only current LXD has (P§5.3).
fn lxd_only(segments: &Segments<'_>) -> Option<Endpoint> {
    let is = |index: usize, word: &str| segments.is(index, word);
    match segments.count() {
        2 if is(1, "ubuntu-pro") => Some(Endpoint::UbuntuPro),
        3 if is(1, "ubuntu-pro") && is(2, "token") => Some(Endpoint::UbuntuProToken),
        3 if is(1, "instances") => Some(Endpoint::Instance),
        3 if is(1, "operations") => Some(Endpoint::Operation),
        4 if is(1, "operations") && is(3, "wait") => Some(Endpoint::OperationWait),
        3 if is(1, "storage-pools") => Some(Endpoint::Pool),
        count if is(1, "storage-pools") && is(3, "volumes") => match count {
            4 | 5 => Some(Endpoint::Volumes),
            6 => Some(Endpoint::Volume),
            7 if is(6, "snapshots") => Some(Endpoint::Snapshots),
            8 if is(6, "snapshots") => Some(Endpoint::Snapshot),
            _ => None,
        },
        _ => None,
    }
}

fn by_method(method: Method, endpoint: Endpoint) -> Option<Route> {
    let ask = match (method, endpoint) {
        (Method::Get, Endpoint::Index) => return Some(Route::Index),
        (Method::Get, Endpoint::Events) => return Some(Route::Events),
        (Method::Get, Endpoint::Info) => Ask::Info,
        (Method::Patch, Endpoint::Info) => Ask::SetState,
        (Method::Get, Endpoint::ConfigKeys) => Ask::ConfigKeys,
        (Method::Get, Endpoint::ConfigValue) => Ask::ConfigValue,
        (Method::Get, Endpoint::MetaData) => Ask::MetaData,
        (Method::Get, Endpoint::ImageExport) => Ask::ImageExport,
        (Method::Get, Endpoint::OperationWait) => Ask::OperationWait,
        (Method::Get, Endpoint::Volumes | Endpoint::Snapshots) => Ask::VolumeList,
        (
            Method::Get,
            Endpoint::Devices
            | Endpoint::UbuntuPro
            | Endpoint::Instance
            | Endpoint::Pool
            | Endpoint::Volume
            | Endpoint::Snapshot,
        )
        | (Method::Post, Endpoint::UbuntuProToken | Endpoint::Volumes | Endpoint::Snapshots)
        | (Method::Put, Endpoint::Volume)
        | (Method::Patch, Endpoint::Instance | Endpoint::Volume)
        | (Method::Delete, Endpoint::Operation | Endpoint::Volume | Endpoint::Snapshot) => {
            Ask::Json
        }
        _ => return None,
    };
    Some(Route::Ask(ask))
}

/// Returns whether a guest may read this key. Current LXD decides that on the host; for the others
/// the agent decides (P§5.3).
fn key_allowed(flavour: Flavour, segments: &Segments<'_>) -> bool {
    match flavour {
        Flavour::Lxd => true,
        Flavour::LxdOld | Flavour::Incus => {
            segments.starts(2, "user.") || segments.starts(2, "cloud-init.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LXD: Flavour = Flavour::Lxd;

    fn get(path: &str) -> Result<Route, NoRoute> {
        route(LXD, Method::Get, path)
    }

    #[test]
    fn every_lxd_endpoint_has_its_route() {
        let pool = "/1.0/storage-pools/p";
        for (method, path, expected) in [
            (Method::Get, "/", Route::Index),
            (Method::Get, "/1.0", Route::Ask(Ask::Info)),
            (Method::Get, "/1.0/config", Route::Ask(Ask::ConfigKeys)),
            (Method::Get, "/1.0/config/user.a", Route::Ask(Ask::ConfigValue)),
            (Method::Get, "/1.0/meta-data", Route::Ask(Ask::MetaData)),
            (Method::Get, "/1.0/events", Route::Events),
            (Method::Get, "/1.0/images/ab/export", Route::Ask(Ask::ImageExport)),
            (Method::Get, "/1.0/operations/x/wait", Route::Ask(Ask::OperationWait)),
            (Method::Get, "/1.0/devices", Route::Ask(Ask::Json)),
            (Method::Get, "/1.0/ubuntu-pro", Route::Ask(Ask::Json)),
            (Method::Get, "/1.0/instances/c1", Route::Ask(Ask::Json)),
            (Method::Get, pool, Route::Ask(Ask::Json)),
            (Method::Get, &format!("{pool}/volumes"), Route::Ask(Ask::VolumeList)),
            (Method::Get, &format!("{pool}/volumes/custom"), Route::Ask(Ask::VolumeList)),
            (Method::Get, &format!("{pool}/volumes/c/v/snapshots"), Route::Ask(Ask::VolumeList)),
            (Method::Post, &format!("{pool}/volumes/custom"), Route::Ask(Ask::Json)),
            (Method::Delete, &format!("{pool}/volumes/c/v/snapshots/s"), Route::Ask(Ask::Json)),
            (Method::Delete, "/1.0/operations/x", Route::Ask(Ask::Json)),
            (Method::Post, "/1.0/ubuntu-pro/token", Route::Ask(Ask::Json)),
        ] {
            assert_eq!(route(LXD, method, path), Ok(expected), "{path}");
        }
    }

    #[test]
    fn unknown_paths_answer_as_each_flavour_does() {
        assert_eq!(get("/1.0/nope"), Ok(Route::Index));
        assert_eq!(get("/foo"), Ok(Route::Index));
        assert_eq!(route(Flavour::Incus, Method::Get, "/1.0/nope"), Err(NoRoute::Path));
        assert_eq!(route(Flavour::Incus, Method::Get, "/1.0/ubuntu-pro"), Err(NoRoute::Path));
        for path in ["/foo", "/1.0/", "/1.0/nope", "/1.0/ubuntu-pro", "/1.0/config/user.a/b"] {
            let old = route(Flavour::LxdOld, Method::Get, path);
            assert_eq!(old, Err(NoRoute::Path), "{path}");
        }
        let encoded = route(Flavour::LxdOld, Method::Get, "/1.0/config/user.a%2Fb");
        assert_eq!(encoded, Ok(Route::Ask(Ask::ConfigValue)));
        assert_eq!(NoRoute::Path.reply(), (404, "404 page not found"));
    }

    #[test]
    fn a_known_path_with_another_method_is_501_and_an_unknown_verb_404() {
        assert_eq!(route(LXD, Method::Post, "/1.0/config"), Err(NoRoute::Method));
        assert_eq!(route(LXD, Method::Other, "/1.0/config"), Err(NoRoute::Verb));
        assert_eq!(NoRoute::Method.reply().0, 501);
    }

    #[test]
    fn long_requests_are_recognised() {
        for (path, long) in [
            ("/1.0/operations/x/wait", true),
            ("/1.0/images/ab/export", true),
            ("/1.0/meta-data", false),
            ("/1.0/devices", false),
        ] {
            let Ok(Route::Ask(ask)) = get(path) else { panic!("{path}") };
            assert_eq!(ask.takes_long(), long, "{path}");
        }
    }

    #[test]
    fn an_encoded_slash_stays_inside_its_key() {
        assert_eq!(get("/1.0/config/user.a%2Fb"), Ok(Route::Ask(Ask::ConfigValue)));
        assert_eq!(get("/1.0/config/user.%zz"), Err(NoRoute::Encoding));
        assert_eq!(get("/1%2E0/config"), Ok(Route::Ask(Ask::ConfigKeys)));
    }

    #[test]
    fn incus_guests_may_only_ask_for_their_own_keys() {
        let ask = |path| route(Flavour::Incus, Method::Get, path);
        assert_eq!(ask("/1.0/config/user.a"), Ok(Route::Ask(Ask::ConfigValue)));
        assert_eq!(ask("/1.0/config/%75ser.a"), Ok(Route::Ask(Ask::ConfigValue)));
        assert_eq!(ask("/1.0/config/volatile.uuid"), Err(NoRoute::Key));
        assert_eq!(get("/1.0/config/volatile.uuid"), Ok(Route::Ask(Ask::ConfigValue)));
    }
}
