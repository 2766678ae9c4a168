//! Finds the [`Route`] of a host's request by flavour, method and path. Source: P§3.1 and the table
//! of P§4.

pub use crate::devlxd::route::NoRoute;
use crate::flavour::Flavour;
use crate::hostapi::policy::Capability;
use crate::http::head::Method;
use crate::http::path::Segments;

/// An endpoint of the host API. The third segment of a path is an operation's ID: [`operation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    Index,
    Info,
    /// `PUT /1.0`: the host info.
    Connect,
    Events,
    PostEvent,
    Exec,
    Metrics,
    Operations,
    Operation,
    CancelOperation,
    WaitOperation,
    OperationSocket,
    /// `POST /1.0/port-forward`; Incus only.
    PortForward,
    Sftp,
    State,
}

impl Route {
    /// Returns the capability that the route needs; `None` if the guest's policy cannot deny it.
    #[inline(never)] // its size
    pub fn needs(self) -> Option<Capability> {
        const ALL: [(Route, Capability); 5] = [
            (Route::Exec, Capability::Exec),
            (Route::Sftp, Capability::Files),
            (Route::PortForward, Capability::PortForward),
            (Route::Metrics, Capability::Metrics),
            (Route::State, Capability::State),
        ];
        ALL.iter().find(|(route, _)| *route == self).map(|(_, needs)| *needs)
    }
}

/// Finds the route of a host's request.
/// Errors: [`NoRoute`], which determines the status of the answer.
pub fn route(flavour: Flavour, method: Method, path: &str) -> Result<Route, NoRoute> {
    let segments = Segments::split(path).ok_or(NoRoute::Encoding)?;
    match method {
        // Go's mux answers these methods with 404 (P§3.1).
        Method::Head | Method::Options | Method::Other => return Err(NoRoute::Verb),
        Method::Get | Method::Post | Method::Put | Method::Patch | Method::Delete => {}
    }
    match (routes(flavour, &segments), flavour) {
        // Current LXD's catch-all answers any unknown path like `/` (P§3.1).
        ([], Flavour::Lxd) => Ok(Route::Index),
        ([], Flavour::LxdOld | Flavour::Incus) => Err(NoRoute::Path),
        (known, _) => {
            let found = known.iter().find(|(of, _)| *of == method);
            found.map(|(_, route)| *route).ok_or(NoRoute::Method)
        }
    }
}

/// Returns the ID in the path of an operation, not percent-decoded; empty if there is none.
pub fn operation(path: &str) -> &str {
    Segments::split(path).map_or("", |segments| segments.raw(2))
}

/// Returns the routes of a path by their methods; none for an unknown path.
fn routes(flavour: Flavour, segments: &Segments<'_>) -> &'static [(Method, Route)] {
    let is = |index: usize, name: &str| segments.is(index, name);
    match segments.count() {
        0 => &[(Method::Get, Route::Index)],
        _ if !is(0, "1.0") => &[],
        1 => &[(Method::Get, Route::Info), (Method::Put, Route::Connect)],
        2 if is(1, "events") => &[(Method::Get, Route::Events), (Method::Post, Route::PostEvent)],
        2 if is(1, "exec") => &[(Method::Post, Route::Exec)],
        2 if is(1, "metrics") => &[(Method::Get, Route::Metrics)],
        2 if is(1, "operations") => &[(Method::Get, Route::Operations)],
        2 if is(1, "sftp") => &[(Method::Get, Route::Sftp)],
        2 if is(1, "state") => &[(Method::Get, Route::State)],
        2 if flavour == Flavour::Incus && is(1, "port-forward") => {
            &[(Method::Post, Route::PortForward)]
        }
        3 if is(1, "operations") && !segments.raw(2).is_empty() => {
            &[(Method::Get, Route::Operation), (Method::Delete, Route::CancelOperation)]
        }
        4 if is(1, "operations") && is(3, "wait") => &[(Method::Get, Route::WaitOperation)],
        4 if is(1, "operations") && is(3, "websocket") => &[(Method::Get, Route::OperationSocket)],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deniable_routes_need_their_capability() {
        let needs = |method, path| route(Flavour::Incus, method, path).unwrap().needs();
        let posted = ["/1.0/exec", "/1.0/port-forward"].map(|path| needs(Method::Post, path));
        assert_eq!(posted, [Some(Capability::Exec), Some(Capability::PortForward)]);
        let got = ["/1.0/sftp", "/1.0/metrics", "/1.0/state"].map(|path| needs(Method::Get, path));
        assert_eq!(got, [Capability::Files, Capability::Metrics, Capability::State].map(Some));
        for path in ["/", "/1.0", "/1.0/events", "/1.0/operations"] {
            assert_eq!(needs(Method::Get, path), None, "{path}");
        }
    }
}
