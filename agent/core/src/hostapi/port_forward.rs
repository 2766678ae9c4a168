//! Reads the body of Incus' `POST /1.0/port-forward` (P§4.7), which requests a connection to a TCP
//! port.

use alloc::string::String;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::json::{JsonError, Value};

/// The requested target of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The address as text, also for messages; `127.0.0.1` if none was given.
    pub name: String,
    /// The TCP port.
    pub port: u16,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadTarget {
    /// Not JSON.
    Json(JsonError),
    /// The address is not a string.
    Address,
    /// The port is not a number from 1 to 65,535; holds its JSON.
    Port(String),
}

impl fmt::Display for BadTarget {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => write!(out, "Invalid port-forward request: {error}"),
            Self::Address => out.write_str("Invalid address"),
            Self::Port(given) => write!(out, "Invalid port {given}"),
        }
    }
}

impl Target {
    /// Reads the request's body.
    ///
    /// # Errors
    /// [`BadTarget`] if it is not a JSON object, or the address or port is invalid.
    pub fn parse(body: &[u8]) -> Result<Self, BadTarget> {
        let request = Value::parse(body).map_err(BadTarget::Json)?;
        let [name, port] = request.fields(["address", "port"]).map_err(BadTarget::Json)?;
        let name = name.map_or(Ok(String::new()), Value::string).map_err(|_| BadTarget::Address)?;
        let name = if name.is_empty() { "127.0.0.1".into() } else { name };
        let port = port.map_or("0", Value::raw);
        match port.parse() {
            Ok(number @ 1..) => Ok(Self { name, port: number }),
            Ok(0) | Err(_) => Err(BadTarget::Port(port.into())),
        }
    }

    /// Returns the address to connect to; `None` for any name except `localhost`: a lookup could
    /// block, and needs a resolver.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        let address = match self.name.as_str() {
            "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
            name => name.parse().ok()?,
        };
        Some(SocketAddr::new(address, self.port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn does_not_resolve_names() {
        for name in ["example.org", "localhost.", "127.0.0.1:80", "[::1]"] {
            let target = Target { name: name.into(), port: 1 };
            assert_eq!(target.address(), None, "{name}");
        }
    }

    #[test]
    fn rejects_invalid_targets_with_the_reason() {
        for (body, why) in [
            ("{\"port\":", "Invalid port-forward request: JSON ends too early"),
            ("{\"port\":80,\"address\":7}", "Invalid address"),
            ("{}", "Invalid port 0"),
            ("[]", "Invalid port-forward request: unexpected JSON structure"),
            ("{\"port\":0}", "Invalid port 0"),
            ("{\"port\":65536}", "Invalid port 65536"),
            ("{\"port\":\"80\"}", "Invalid port \"80\""),
        ] {
            assert_eq!(Target::parse(body.as_bytes()).unwrap_err().to_string(), why, "{body}");
        }
    }
}
