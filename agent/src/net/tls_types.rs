//! rustls's types for resumed sessions.

use rustls::NamedGroup;
use rustls::client::Tls13ClientSessionValue;

pub(crate) type Ticket = Tls13ClientSessionValue;
pub(crate) type Group = NamedGroup;
