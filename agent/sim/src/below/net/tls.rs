//! Certificates are numbers, and so are tickets.

use std::io;
use std::sync::Arc;

use mote_core::hostapi::host_peer::{HostPeer, NotTheHost, authenticate};

use crate::config::files::ConfigFiles;
use crate::host::caller::HOST_CLIENT;
use crate::machine::handshake::Certificate;
use crate::net::tickets::Store;
use crate::net::tls_error::Unusable;
use crate::net::tls_types::Ticket;

/// The agent's certificate.
pub(crate) const OURS: Certificate = 7;

/// The one caller that is let in.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) caller: Certificate,
}

pub(crate) struct Identity;

impl Identity {
    pub(crate) fn load(_: &ConfigFiles) -> Result<Self, Unusable> {
        Ok(Self)
    }

    pub(crate) fn server(&self) -> io::Result<Server> {
        Ok(Server { caller: HOST_CLIENT })
    }

    pub(crate) fn client(&self, pin: Pin) -> io::Result<Client> {
        Ok(Client { pin, tickets: Arc::default() })
    }

    pub(crate) fn receipt(&self, presented: Option<Certificate>) -> Result<HostPeer, NotTheHost> {
        let presented = presented.map(u64::to_le_bytes);
        authenticate(presented.as_ref().map(<[u8; 8]>::as_slice), &HOST_CLIENT.to_le_bytes())
    }
}

#[derive(Clone)]
pub(crate) struct Client {
    pin: Pin,
    pub(crate) tickets: Arc<Store>,
}

/// A hello that is about to be sent.
pub(crate) struct Begun {
    pub(crate) pin: Pin,
    pub(crate) ticket: Option<Ticket>,
    pub(crate) store: Arc<Store>,
}

impl Client {
    pub(crate) fn begin(&self) -> io::Result<Begun> {
        let store = self.tickets.clone();
        Ok(Begun { pin: self.pin.clone(), ticket: store.take(), store })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pin {
    Certificate(Vec<u8>),
    Fingerprint([u8; 32]),
}

impl Pin {
    pub(crate) fn is(&self, certificate: Certificate) -> bool {
        match self {
            Self::Certificate(known) => *known == certificate.to_le_bytes(),
            Self::Fingerprint(print) => *print == fingerprint(certificate),
        }
    }

    pub(crate) fn has_fingerprint(&self, fingerprint: &[u8; 32]) -> bool {
        match self {
            Self::Certificate(known) => known.first() == fingerprint.first(),
            Self::Fingerprint(known) => known == fingerprint,
        }
    }
}

/// What a line says of a certificate: its number, all over.
pub(crate) fn fingerprint(certificate: Certificate) -> [u8; 32] {
    [certificate.to_le_bytes()[0]; 32]
}

pub(crate) fn certificate_bytes(pem: &[u8], name: &'static str) -> Result<Vec<u8>, Unusable> {
    let text = String::from_utf8_lossy(pem);
    let number = text.rsplit(' ').next().and_then(|number| number.trim().parse::<u64>().ok());
    number.map(|number| number.to_le_bytes().to_vec()).ok_or(Unusable::File(name))
}
