//! (flavour, method, path) → [`Route`]. The table of paths and the table of methods are each seen
//! whole. Source: P§5.2 (unknown paths and methods), P§5.3 (endpoints).
//!
//! Matching is done on raw segments, so that an encoded `/` in a key never makes a new segment; the
//! path that is forwarded is the client's own, byte for byte.

use crate::flavour::Flavour;
use crate::http::head::Method;
use crate::path::Segments;

/// What a guest client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// `GET /`: the list of API versions, known without the host.
    Index,
    /// `GET /1.0/events`: our own event stream, not proxied.
    Events,
    /// Anything that the host must answer.
    Ask(Ask),
}

/// A request that goes to the host, and how its answer is shown to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// `GET /1.0`.
    Info,
    /// `PATCH /1.0`: Ready or Started.
    SetState,
    /// `GET /1.0/config`.
    ConfigKeys,
    /// `GET /1.0/config/{key}`: the value as it is.
    ConfigValue,
    /// `GET /1.0/meta-data`: text as it is; the connection is retried for longer (P§5.3).
    MetaData,
    /// `GET /1.0/images/{fingerprint}/export`: a stream of any size.
    ImageExport,
    /// A volume list: always asked with `recursion=1` (P§5.3).
    VolumeList,
    /// `GET /1.0/operations/{id}/wait`: may take as long as the client wants.
    OperationWait,
    /// Every other endpoint: JSON in, JSON out, passed through.
    Json,
}

impl Ask {
    /// Whether the answer is shown as bare text rather than as JSON (P§5.2).
    #[must_use]
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
}

/// Why a request has no route: decides the status (P§5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoute {
    /// Incus says 404; LXD's catch-all is [`Route::Index`] and never comes here for GET.
    Path,
    /// The path is known, the method has no handler: 501.
    Method,
    /// A verb nobody knows: 404.
    Verb,
    /// Broken percent-encoding: 400.
    Encoding,
    /// A configuration key that guests may not read: 403.
    Key,
}

impl NoRoute {
    /// HTTP status and body text.
    #[must_use]
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

/// Where a path leads, before the method is looked at.
#[derive(Clone, Copy)]
enum Place {
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

/// Finds the route of a request.
///
/// # Errors
/// [`NoRoute`], with its status.
pub fn route(flavour: Flavour, method: Method, path: &str) -> Result<Route, NoRoute> {
    let segments = Segments::split(path).map_err(|_| NoRoute::Encoding)?;
    let place = match place(flavour, &segments) {
        Some(place) => place,
        None => match flavour {
            // LXD's mux has a catch-all at `/` (P§5.2).
            Flavour::Lxd | Flavour::LxdOld => Place::Index,
            Flavour::Incus => return Err(NoRoute::Path),
        },
    };
    let method = match method {
        // A HEAD is a GET whose body is not written.
        Method::Head => Method::Get,
        Method::Options | Method::Other => return Err(NoRoute::Verb),
        Method::Get | Method::Post | Method::Put | Method::Patch | Method::Delete => method,
    };
    if matches!(place, Place::ConfigValue) && !key_allowed(flavour, &segments) {
        return Err(NoRoute::Key);
    }
    by_method(method, place).ok_or(NoRoute::Method)
}

fn place(flavour: Flavour, segments: &Segments<'_>) -> Option<Place> {
    let is = |index: usize, word: &str| segments.is(index, word);
    if segments.count() == 0 {
        return Some(Place::Index);
    }
    if !is(0, "1.0") {
        return None;
    }
    match segments.count() {
        1 => Some(Place::Info),
        2 if is(1, "config") => Some(Place::ConfigKeys),
        2 if is(1, "meta-data") => Some(Place::MetaData),
        2 if is(1, "events") => Some(Place::Events),
        2 if is(1, "devices") => Some(Place::Devices),
        3 if is(1, "config") => Some(Place::ConfigValue),
        // The Go agents lack it on Incus although the host has it; passing it on harms nobody.
        4 if is(1, "images") && is(3, "export") => Some(Place::ImageExport),
        _ => match flavour {
            Flavour::Lxd => lxd_only(segments),
            Flavour::LxdOld | Flavour::Incus => None,
        },
    }
}

/// Endpoints that only current LXD has (P§5.3).
fn lxd_only(segments: &Segments<'_>) -> Option<Place> {
    let is = |index: usize, word: &str| segments.is(index, word);
    match segments.count() {
        2 if is(1, "ubuntu-pro") => Some(Place::UbuntuPro),
        3 if is(1, "ubuntu-pro") && is(2, "token") => Some(Place::UbuntuProToken),
        3 if is(1, "instances") => Some(Place::Instance),
        3 if is(1, "operations") => Some(Place::Operation),
        4 if is(1, "operations") && is(3, "wait") => Some(Place::OperationWait),
        3 if is(1, "storage-pools") => Some(Place::Pool),
        count if is(1, "storage-pools") && is(3, "volumes") => match count {
            4 | 5 => Some(Place::Volumes),
            6 => Some(Place::Volume),
            7 if is(6, "snapshots") => Some(Place::Snapshots),
            8 if is(6, "snapshots") => Some(Place::Snapshot),
            _ => None,
        },
        _ => None,
    }
}

fn by_method(method: Method, place: Place) -> Option<Route> {
    let ask = match (method, place) {
        (Method::Get, Place::Index) => return Some(Route::Index),
        (Method::Get, Place::Events) => return Some(Route::Events),
        (Method::Get, Place::Info) => Ask::Info,
        (Method::Patch, Place::Info) => Ask::SetState,
        (Method::Get, Place::ConfigKeys) => Ask::ConfigKeys,
        (Method::Get, Place::ConfigValue) => Ask::ConfigValue,
        (Method::Get, Place::MetaData) => Ask::MetaData,
        (Method::Get, Place::ImageExport) => Ask::ImageExport,
        (Method::Get, Place::OperationWait) => Ask::OperationWait,
        (Method::Get, Place::Volumes | Place::Snapshots) => Ask::VolumeList,
        (
            Method::Get,
            Place::Devices
            | Place::UbuntuPro
            | Place::Instance
            | Place::Pool
            | Place::Volume
            | Place::Snapshot,
        )
        | (Method::Post, Place::UbuntuProToken | Place::Volumes | Place::Snapshots)
        | (Method::Put, Place::Volume)
        | (Method::Patch, Place::Instance | Place::Volume)
        | (Method::Delete, Place::Operation | Place::Volume | Place::Snapshot) => Ask::Json,
        _ => return None,
    };
    Some(Route::Ask(ask))
}

/// Whether a guest may ask for this key: on Incus and old LXD the agent checks (P§5.3), current LXD
/// decides on the host.
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
        let json = Ok(Route::Ask(Ask::Json));
        assert_eq!(get("/"), Ok(Route::Index));
        assert_eq!(get("/1.0"), Ok(Route::Ask(Ask::Info)));
        assert_eq!(get("/1.0/config"), Ok(Route::Ask(Ask::ConfigKeys)));
        assert_eq!(get("/1.0/config/user.a"), Ok(Route::Ask(Ask::ConfigValue)));
        assert_eq!(get("/1.0/meta-data"), Ok(Route::Ask(Ask::MetaData)));
        assert_eq!(get("/1.0/events"), Ok(Route::Events));
        assert_eq!(get("/1.0/images/ab/export"), Ok(Route::Ask(Ask::ImageExport)));
        assert_eq!(get("/1.0/operations/x/wait"), Ok(Route::Ask(Ask::OperationWait)));
        for path in ["/1.0/devices", "/1.0/ubuntu-pro", "/1.0/instances/c1", "/1.0/storage-pools/p"]
        {
            assert_eq!(get(path), json, "{path}");
        }
        for path in ["volumes", "volumes/custom", "volumes/custom/v/snapshots"] {
            let path = std::format!("/1.0/storage-pools/p/{path}");
            assert_eq!(get(&path), Ok(Route::Ask(Ask::VolumeList)), "{path}");
            if path.ends_with("volumes/custom") {
                assert_eq!(route(LXD, Method::Post, &path), json);
            }
        }
        assert_eq!(route(LXD, Method::Delete, "/1.0/operations/x"), json);
        assert_eq!(route(LXD, Method::Post, "/1.0/ubuntu-pro/token"), json);
        assert_eq!(
            route(LXD, Method::Delete, "/1.0/storage-pools/p/volumes/custom/v/snapshots/s"),
            json
        );
    }

    #[test]
    fn unknown_paths_answer_as_each_flavour_does() {
        assert_eq!(get("/1.0/nope"), Ok(Route::Index));
        assert_eq!(get("/foo"), Ok(Route::Index));
        assert_eq!(route(Flavour::Incus, Method::Get, "/1.0/nope"), Err(NoRoute::Path));
        assert_eq!(route(Flavour::Incus, Method::Get, "/1.0/ubuntu-pro"), Err(NoRoute::Path));
    }

    #[test]
    fn a_known_path_with_another_method_is_501_and_an_unknown_verb_404() {
        assert_eq!(route(LXD, Method::Post, "/1.0/config"), Err(NoRoute::Method));
        assert_eq!(route(LXD, Method::Other, "/1.0/config"), Err(NoRoute::Verb));
        assert_eq!(NoRoute::Method.reply().0, 501);
    }

    #[test]
    fn head_is_routed_like_get() {
        assert_eq!(route(LXD, Method::Head, "/1.0/devices"), get("/1.0/devices"));
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
