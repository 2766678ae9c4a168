//! What a session is resumed with.

use rustls::NamedGroup;
use rustls::client::Tls13ClientSessionValue;

/// A ticket of the host's.
pub(crate) type Ticket = Tls13ClientSessionValue;
/// A key exchange.
pub(crate) type Group = NamedGroup;
