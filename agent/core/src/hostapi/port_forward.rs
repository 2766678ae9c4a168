//! Reads the body of Incus' `POST /1.0/port-forward` (P§4.7): the TCP port to connect to.

use alloc::string::String;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::decimal::digits;
use crate::json::{JsonError, Value};

/// Prefix of a unix socket's name.
const UNIX: &str = "unix:";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The address as text, as in messages; `127.0.0.1` if none was given. For `connect` also
    /// `unix:PATH`.
    pub name: String,
    /// The TCP port; 0 for a unix socket.
    pub port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadTarget {
    Json(JsonError),
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
    /// Errors: [`BadTarget`] if it is not a JSON object, or the address or port is invalid.
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

    /// Reads `HOST:PORT`, with an IPv6 address in brackets, or `unix:PATH`, which gets port 0.
    pub fn named(text: &str) -> Option<Self> {
        if text.strip_prefix(UNIX).is_some_and(|path| !path.is_empty()) {
            return Some(Self { name: text.into(), port: 0 });
        }
        let (name, port) = text.rsplit_once(':')?;
        let name = match name.strip_prefix('[') {
            Some(name) => name.strip_suffix(']')?,
            None if name.contains(':') => return None,
            None => name,
        };
        let port = digits(port).filter(|port| *port > 0)?;
        let target = Self { name: name.into(), port };
        target.address().is_some().then_some(target)
    }

    /// Returns the path of a unix socket; empty for TCP.
    pub fn path(&self) -> &str {
        self.name.strip_prefix(UNIX).unwrap_or_default()
    }

    /// Returns the address to connect to; `None` for any name except `localhost`: a lookup could
    /// block, and needs a resolver.
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

    #[test]
    fn reads_a_command_lines_target() {
        let read = |text| {
            let target = Target::named(text)?;
            Some(target.address().map_or(target.path().into(), |address| address.to_string()))
        };
        for (text, target) in [
            ("localhost:22", Some("127.0.0.1:22")),
            ("[::1]:65535", Some("[::1]:65535")),
            ("unix:/run/x:1", Some("/run/x:1")),
            ("::1:22", None),
            ("[::1:22", None),
            ("127.0.0.1", None),
            ("127.0.0.1:0", None),
            ("localhost:+22", None),
            ("example.org:22", None),
            ("localhost.:22", None),
            ("unix:", None),
        ] {
            assert_eq!(read(text).as_deref(), target, "{text}");
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
