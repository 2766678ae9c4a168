//! Finds the [`Route`] of a host's request by flavour, method and path. Source: P§3.1 and the table
//! of P§4.

use crate::flavour::Flavour;
use crate::hostapi::policy::Capability;
use crate::http::head::Method;
use crate::http::path::Segments;

/// An endpoint of the host API. The third segment of the path is the ID of an operation: see
/// [`operation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    Index,
    /// `GET /1.0`.
    Info,
    /// `PUT /1.0`: the host info.
    Connect,
    /// `GET /1.0/events`.
    Events,
    /// `POST /1.0/events`.
    PostEvent,
    /// `POST /1.0/exec`.
    Exec,
    /// `GET /1.0/metrics`.
    Metrics,
    /// `GET /1.0/operations`.
    Operations,
    /// `GET /1.0/operations/{id}`.
    Operation,
    /// `DELETE /1.0/operations/{id}`.
    CancelOperation,
    /// `GET /1.0/operations/{id}/wait`.
    WaitOperation,
    /// `GET /1.0/operations/{id}/websocket`.
    OperationSocket,
    /// `POST /1.0/port-forward`; Incus only.
    PortForward,
    /// `GET /1.0/sftp`.
    Sftp,
    /// `GET /1.0/state`.
    State,
}

impl Route {
    /// Returns the capability that it needs; `None` if the guest's policy cannot deny it.
    pub fn needs(self) -> Option<Capability> {
        match self {
            Self::Exec => Some(Capability::Exec),
            Self::Sftp => Some(Capability::Files),
            Self::PortForward => Some(Capability::PortForward),
            Self::Metrics => Some(Capability::Metrics),
            Self::State => Some(Capability::State),
            Self::Index
            | Self::Info
            | Self::Connect
            | Self::Events
            | Self::PostEvent
            | Self::Operations
            | Self::Operation
            | Self::CancelOperation
            | Self::WaitOperation
            | Self::OperationSocket => None,
        }
    }
}

/// Why a request has no route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoute {
    /// Unknown path, on Incus and old LXD: 404 as plain text.
    Path,
    /// The path does not support this method: 501 in the envelope.
    Method,
    /// HEAD, OPTIONS or an unknown method: 404.
    Verb,
    /// Invalid percent-encoding: 400.
    Encoding,
}

/// Finds the route of a host's request.
/// Errors: [`NoRoute`], which determines the status of the answer.
pub fn route(flavour: Flavour, method: Method, path: &str) -> Result<Route, NoRoute> {
    let segments = Segments::split(path).map_err(|_| NoRoute::Encoding)?;
    match method {
        // Go's mux answers these methods with 404 (P§3.1).
        Method::Head | Method::Options | Method::Other => return Err(NoRoute::Verb),
        Method::Get | Method::Post | Method::Put | Method::Patch | Method::Delete => {}
    }
    match endpoint(flavour, &segments) {
        Some(endpoint) => by_method(method, endpoint).ok_or(NoRoute::Method),
        // Current LXD's catch-all answers any unknown path like `/` (P§3.1).
        None => match flavour {
            Flavour::Lxd => Ok(Route::Index),
            Flavour::LxdOld | Flavour::Incus => Err(NoRoute::Path),
        },
    }
}

/// Returns the ID in the path of an operation, not percent-decoded; empty if there is none.
pub fn operation(path: &str) -> &str {
    Segments::split(path).map_or("", |segments| segments.raw(2))
}

/// A known path, whose methods [`by_method`] lists.
#[derive(Clone, Copy)]
enum Endpoint {
    Index,
    Info,
    Events,
    Exec,
    Metrics,
    Operations,
    Operation,
    OperationWait,
    OperationSocket,
    PortForward,
    Sftp,
    State,
}

fn endpoint(flavour: Flavour, segments: &Segments<'_>) -> Option<Endpoint> {
    let is = |index: usize, name: &str| segments.is(index, name);
    let count = segments.count();
    if count > 0 && !is(0, "1.0") {
        return None;
    }
    match count {
        0 => Some(Endpoint::Index),
        1 => Some(Endpoint::Info),
        2 => [
            ("events", Endpoint::Events),
            ("exec", Endpoint::Exec),
            ("metrics", Endpoint::Metrics),
            ("operations", Endpoint::Operations),
            ("sftp", Endpoint::Sftp),
            ("state", Endpoint::State),
        ]
        .into_iter()
        .find_map(|(name, endpoint)| is(1, name).then_some(endpoint))
        .or_else(|| {
            (flavour == Flavour::Incus && is(1, "port-forward")).then_some(Endpoint::PortForward)
        }),
        3 if is(1, "operations") && !segments.raw(2).is_empty() => Some(Endpoint::Operation),
        4 if is(1, "operations") && is(3, "wait") => Some(Endpoint::OperationWait),
        4 if is(1, "operations") && is(3, "websocket") => Some(Endpoint::OperationSocket),
        _ => None,
    }
}

fn by_method(method: Method, endpoint: Endpoint) -> Option<Route> {
    Some(match (method, endpoint) {
        (Method::Get, Endpoint::Index) => Route::Index,
        (Method::Get, Endpoint::Info) => Route::Info,
        (Method::Put, Endpoint::Info) => Route::Connect,
        (Method::Get, Endpoint::Events) => Route::Events,
        (Method::Post, Endpoint::Events) => Route::PostEvent,
        (Method::Post, Endpoint::Exec) => Route::Exec,
        (Method::Get, Endpoint::Metrics) => Route::Metrics,
        (Method::Get, Endpoint::Operations) => Route::Operations,
        (Method::Get, Endpoint::Operation) => Route::Operation,
        (Method::Delete, Endpoint::Operation) => Route::CancelOperation,
        (Method::Get, Endpoint::OperationWait) => Route::WaitOperation,
        (Method::Get, Endpoint::OperationSocket) => Route::OperationSocket,
        (Method::Post, Endpoint::PortForward) => Route::PortForward,
        (Method::Get, Endpoint::Sftp) => Route::Sftp,
        (Method::Get, Endpoint::State) => Route::State,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deniable_routes_need_their_capability() {
        let needs = |method, path| route(Flavour::Incus, method, path).unwrap().needs();
        assert_eq!(needs(Method::Post, "/1.0/exec"), Some(Capability::Exec));
        assert_eq!(needs(Method::Get, "/1.0/sftp"), Some(Capability::Files));
        assert_eq!(needs(Method::Get, "/1.0/metrics"), Some(Capability::Metrics));
        assert_eq!(needs(Method::Get, "/1.0/state"), Some(Capability::State));
        assert_eq!(needs(Method::Post, "/1.0/port-forward"), Some(Capability::PortForward));
        for path in ["/", "/1.0", "/1.0/events", "/1.0/operations"] {
            assert_eq!(needs(Method::Get, path), None, "{path}");
        }
    }
}
