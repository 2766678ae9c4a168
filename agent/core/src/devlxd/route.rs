//! Finds the [`Route`] of a guest's request by its path and method. Source: P§5.2 (unknown paths and
//! methods), P§5.3 (endpoints).
//!
//! A path is split before decoding, so an encoded `/` in a key never separates segments. The
//! forwarded path is the client's, byte for byte.

use crate::flavour::Flavour;
use crate::http::head::Method;
use crate::http::path::Segments;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// `GET /`: the list of API versions, answered without the host.
    Index,
    /// `GET /1.0/events`: the agent's own event stream, without the host.
    Events,
    /// A request that the host must answer.
    Ask(Ask),
}

/// A request to the host, by how it is forwarded and how its answer is presented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    Info,
    /// `PATCH /1.0`: Ready or Started.
    SetState,
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
    #[rustfmt::skip] // several in a line
    pub const ALL: [Self; 9] = [
        Self::Info, Self::SetState, Self::ConfigKeys, Self::ConfigValue, Self::MetaData,
        Self::ImageExport, Self::VolumeList, Self::OperationWait, Self::Json,
    ];

    /// Returns whether the answer is presented as bare text rather than JSON (P§5.2).
    pub fn is_raw(self) -> bool {
        matches!(self, Self::SetState | Self::ConfigValue | Self::MetaData)
    }

    /// Returns whether the answer may take minutes even if the host and the guest work normally.
    pub fn takes_long(self) -> bool {
        matches!(self, Self::ImageExport | Self::OperationWait)
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
    /// A configuration key that guests are not allowed to read: 403.
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

/// The routes of a path by their methods.
type Routes = &'static [(Method, Route)];

/// Builds the list of routes of a path that the host answers.
macro_rules! ask {
    ($($method:ident $ask:ident),*) => {
        &[$((Method::$method, Route::Ask(Ask::$ask))),*]
    };
}

/// Finds the route of a request. Errors: [`NoRoute`]; its [`NoRoute::reply`] is the answer.
pub fn route(flavour: Flavour, method: Method, path: &str) -> Result<Route, NoRoute> {
    let segments = Segments::split(path).ok_or(NoRoute::Encoding)?;
    let routes: Routes = match (routes(flavour, &segments), flavour) {
        // Current LXD's mux has a catch-all at `/` (P§5.2). On old LXD the agent must not have one:
        // old clients do not encode a `/` in a key, and would take the index for the key's value.
        ([], Flavour::Lxd) => &[(Method::Get, Route::Index)],
        ([], Flavour::LxdOld | Flavour::Incus) => return Err(NoRoute::Path),
        (known, _) => known,
    };
    let method = match method {
        // HEAD is answered as GET, without the body.
        Method::Head => Method::Get,
        Method::Options | Method::Other => return Err(NoRoute::Verb),
        Method::Get | Method::Post | Method::Put | Method::Patch | Method::Delete => method,
    };
    let is_value = matches!(routes, [(_, Route::Ask(Ask::ConfigValue))]);
    if is_value && !key_allowed(flavour, &segments) {
        return Err(NoRoute::Key);
    }
    let found = routes.iter().find(|(of, _)| *of == method);
    found.map(|(_, route)| *route).ok_or(NoRoute::Method)
}

fn routes(flavour: Flavour, segments: &Segments<'_>) -> Routes {
    let is = |index: usize, word: &str| segments.is(index, word);
    match segments.count() {
        0 => &[(Method::Get, Route::Index)],
        _ if !is(0, "1.0") => &[],
        1 => ask!(Get Info, Patch SetState),
        2 if is(1, "config") => ask!(Get ConfigKeys),
        2 if is(1, "meta-data") => ask!(Get MetaData),
        2 if is(1, "events") => &[(Method::Get, Route::Events)],
        2 if is(1, "devices") => ask!(Get Json),
        3 if is(1, "config") => ask!(Get ConfigValue),
        // Incus hosts have this endpoint, although their Go agent does not forward it.
        4 if is(1, "images") && is(3, "export") => ask!(Get ImageExport),
        _ => match flavour {
            Flavour::Lxd => lxd_only(segments),
            Flavour::LxdOld | Flavour::Incus => &[],
        },
    }
}

/// Returns the routes of a path that only current LXD has (P§5.3).
fn lxd_only(segments: &Segments<'_>) -> Routes {
    let is = |index: usize, word: &str| segments.is(index, word);
    match segments.count() {
        2 if is(1, "ubuntu-pro") => ask!(Get Json),
        3 if is(1, "ubuntu-pro") && is(2, "token") => ask!(Post Json),
        3 if is(1, "instances") => ask!(Get Json, Patch Json),
        3 if is(1, "operations") => ask!(Delete Json),
        4 if is(1, "operations") && is(3, "wait") => ask!(Get OperationWait),
        3 if is(1, "storage-pools") => ask!(Get Json),
        count if is(1, "storage-pools") && is(3, "volumes") => match count {
            // Volumes or snapshots.
            4 | 5 => ask!(Get VolumeList, Post Json),
            6 => ask!(Get Json, Put Json, Patch Json, Delete Json),
            7 if is(6, "snapshots") => ask!(Get VolumeList, Post Json),
            8 if is(6, "snapshots") => ask!(Get Json, Delete Json),
            _ => &[],
        },
        _ => &[],
    }
}

/// Returns whether a guest may read this key. Current LXD decides that on the host; for other
/// servers the agent decides (P§5.3).
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

    fn found(flavour: Flavour, method: Method, path: &str) -> String {
        match route(flavour, method, path) {
            Ok(Route::Ask(ask)) => format!("{ask:?}"),
            Ok(own) => format!("{own:?}"),
            Err(why) => format!("{why:?}"),
        }
    }

    #[test]
    fn finds_the_route_of_each_endpoint() {
        use Method::{Delete, Get, Head, Options, Other, Patch, Post, Put};
        let pool = "/1.0/storage-pools/p";
        let volumes = &format!("{pool}/volumes");
        let [one, snapshots] = ["c/v", "c/v/snapshots"].map(|end| format!("{volumes}/{end}"));
        let of_lxd: [(&str, &[(Method, &str)]); 18] = [
            ("/", &[(Get, "Index"), (Head, "Index"), (Post, "Method"), (Options, "Verb")]),
            ("/1.0", &[(Get, "Info"), (Patch, "SetState"), (Put, "Method"), (Other, "Verb")]),
            ("/1%2E0/config", &[(Get, "ConfigKeys"), (Post, "Method")]),
            ("/1.0/config/user.a", &[(Get, "ConfigValue")]),
            // An encoded slash stays inside its key.
            ("/1.0/config/user.a%2Fb", &[(Get, "ConfigValue")]),
            ("/1.0/config/user.%zz", &[(Get, "Encoding")]),
            ("/1.0/meta-data", &[(Get, "MetaData")]),
            ("/1.0/events", &[(Get, "Events"), (Post, "Method")]),
            ("/1.0/images/ab/export", &[(Get, "ImageExport")]),
            ("/1.0/operations/x", &[(Get, "Method"), (Delete, "Json")]),
            ("/1.0/operations/x/wait", &[(Get, "OperationWait")]),
            ("/1.0/ubuntu-pro/token", &[(Post, "Json")]),
            ("/1.0/instances/c1", &[(Get, "Json"), (Patch, "Json")]),
            (pool, &[(Get, "Json"), (Post, "Method")]),
            (volumes, &[(Get, "VolumeList"), (Post, "Json")]),
            (&one, &[(Get, "Json"), (Put, "Json"), (Patch, "Json"), (Delete, "Json")]),
            (&snapshots, &[(Get, "VolumeList"), (Post, "Json")]),
            (&format!("{snapshots}/s"), &[(Get, "Json"), (Delete, "Json"), (Put, "Method")]),
        ];
        for (path, methods) in of_lxd {
            for (method, expected) in methods {
                assert_eq!(found(Flavour::Lxd, *method, path), *expected, "{method:?} {path}");
            }
        }
    }

    #[test]
    fn paths_and_keys_differ_as_the_servers_do() {
        for (path, expected) in [
            ("/1.0/devices", ["Json"; 3]),
            ("/1.0/ubuntu-pro", ["Json", "Path", "Path"]),
            ("/1.0/nope", ["Index", "Path", "Path"]),
            ("/1.0/", ["Index", "Path", "Path"]),
            ("/foo", ["Index", "Path", "Path"]),
            ("/1.0/config/user.a/b", ["Index", "Path", "Path"]),
            ("/1.0/config/%75ser.a%2Fb", ["ConfigValue"; 3]),
            ("/1.0/config/volatile.uuid", ["ConfigValue", "Key", "Key"]),
        ] {
            let all = [Flavour::Lxd, Flavour::LxdOld, Flavour::Incus];
            assert_eq!(all.map(|flavour| found(flavour, Method::Get, path)), expected, "{path}");
        }
        assert_eq!(NoRoute::Path.reply(), (404, "404 page not found"));
    }
}
