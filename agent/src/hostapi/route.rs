//! (flavour, method, path) → [`Route`] for the host's requests. Source: P§3.1 and the table of P§4.

use crate::flavour::Flavour;
use crate::http::head::Method;
use crate::path::Segments;
use crate::policy::Capability;

/// What the host asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// `GET /`.
    Index,
    /// `GET /1.0`.
    Info,
    /// `PUT /1.0`: where the host is, and whether guests may use devlxd.
    Connect,
    /// `GET /1.0/events`.
    Events,
    /// `POST /1.0/events`.
    PostEvent,
    /// A known endpoint that this build does not serve; carries its first word for the message.
    Absent(&'static str),
}

impl Route {
    /// What the guest's policy must allow for it; nothing for what no guest can refuse.
    #[must_use]
    pub fn needs(self) -> Option<Capability> {
        match self {
            Self::Absent(word) => Capability::of_endpoint(word),
            Self::Index | Self::Info | Self::Connect | Self::Events | Self::PostEvent => None,
        }
    }
}

/// Why there is no route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoute {
    /// Incus: 404, as text.
    Path,
    /// 501 in the envelope.
    Method,
    /// A verb nobody knows: 404.
    Verb,
    /// Broken percent-encoding: 400.
    Encoding,
}

/// Finds the route of a host's request.
///
/// # Errors
/// [`NoRoute`].
pub fn route(flavour: Flavour, method: Method, path: &str) -> Result<Route, NoRoute> {
    let segments = Segments::split(path).map_err(|_| NoRoute::Encoding)?;
    match method {
        // Go's mux answers these verbs 404 (P§3.1).
        Method::Head | Method::Options | Method::Other => return Err(NoRoute::Verb),
        Method::Get | Method::Post | Method::Put | Method::Patch | Method::Delete => {}
    }
    let is = |index: usize, word: &str| segments.is(index, word);
    let known = match segments.count() {
        0 => "/",
        1 if is(0, "1.0") => "1.0",
        2 if is(0, "1.0") => {
            let words =
                ["events", "exec", "metrics", "operations", "sftp", "state", "port-forward"];
            words.into_iter().find(|word| is(1, word)).unwrap_or("")
        }
        3 | 4 if is(0, "1.0") && is(1, "operations") => "operations",
        _ => "",
    };
    match (method, known) {
        // LXD's catch-all answers any unknown path like `/` (P§3.1).
        (_, "") => match flavour {
            Flavour::Lxd | Flavour::LxdOld => Ok(Route::Index),
            Flavour::Incus => Err(NoRoute::Path),
        },
        (Method::Get, "/") => Ok(Route::Index),
        (Method::Get, "1.0") => Ok(Route::Info),
        (Method::Put, "1.0") => Ok(Route::Connect),
        (Method::Get, "events") => Ok(Route::Events),
        (Method::Post, "events") => Ok(Route::PostEvent),
        (_, "/" | "1.0" | "events") => Err(NoRoute::Method),
        (_, word) => Ok(Route::Absent(word)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_paths_are_found_and_other_methods_are_501() {
        let lxd = |method, path| route(Flavour::Lxd, method, path);
        assert_eq!(lxd(Method::Get, "/1.0"), Ok(Route::Info));
        assert_eq!(lxd(Method::Put, "/1.0"), Ok(Route::Connect));
        assert_eq!(lxd(Method::Post, "/1.0/events"), Ok(Route::PostEvent));
        assert_eq!(lxd(Method::Delete, "/1.0"), Err(NoRoute::Method));
        assert_eq!(lxd(Method::Head, "/1.0"), Err(NoRoute::Verb));
        assert_eq!(lxd(Method::Post, "/1.0/exec"), Ok(Route::Absent("exec")));
    }

    #[test]
    fn what_a_guest_can_refuse_needs_its_leave() {
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

    #[test]
    fn unknown_paths_answer_as_each_flavour_does() {
        assert_eq!(route(Flavour::Lxd, Method::Get, "/1.0/files"), Ok(Route::Index));
        assert_eq!(route(Flavour::Lxd, Method::Post, "/1.0/"), Ok(Route::Index));
        assert_eq!(route(Flavour::Incus, Method::Get, "/1.0/files"), Err(NoRoute::Path));
    }
}
