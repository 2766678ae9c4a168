//! TLS in which certificates and tickets are numbers.

use std::sync::Arc;

use mote_core::hostapi::host_info::{HostPeer, authenticate};

use crate::config::files::ConfigFiles;
use crate::host::calls::HOST_CLIENT;
use crate::net::tickets::Store;
use crate::sim_prelude::*;

pub(crate) type Ticket = u64;
pub(crate) type Group = ();

pub(crate) const OURS: Certificate = 7;

/// The only accepted caller.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) caller: Certificate,
}

pub(crate) struct Identity;

impl Identity {
    pub(crate) fn load(_: &ConfigFiles) -> Result<Self, String> {
        Ok(Self)
    }

    pub(crate) fn server(&self) -> io::Result<Server> {
        Ok(Server { caller: HOST_CLIENT })
    }

    pub(crate) fn client(&self, fingerprint: [u8; 32]) -> io::Result<Client> {
        Ok(Client { fingerprint, tickets: Arc::default() })
    }

    pub(crate) fn receipt(&self, presented: Option<Certificate>) -> Option<HostPeer> {
        let presented = presented.map(u64::to_le_bytes);
        authenticate(presented.as_ref().map(<[u8; 8]>::as_slice), &HOST_CLIENT.to_le_bytes())
    }
}

#[derive(Clone)]
pub(crate) struct Client {
    fingerprint: [u8; 32],
    pub(crate) tickets: Arc<Store>,
}

pub(crate) struct Begun {
    pub(crate) fingerprint: [u8; 32],
    pub(crate) ticket: Option<Ticket>,
    pub(crate) store: Arc<Store>,
}

impl Client {
    pub(crate) fn begin(&self) -> io::Result<Begun> {
        let store = self.tickets.clone();
        Ok(Begun { fingerprint: self.fingerprint, ticket: store.take(), store })
    }
}

/// Returns a fingerprint: the certificate's number, repeated.
pub(crate) fn fingerprint(certificate: Certificate) -> [u8; 32] {
    [certificate.to_le_bytes()[0]; 32]
}

pub(crate) fn pem_fingerprint(pem: &[u8]) -> Result<[u8; 32], String> {
    let text = String::from_utf8_lossy(pem);
    let number = text.rsplit(' ').next().and_then(|number| number.trim().parse::<u64>().ok());
    number.map(fingerprint).ok_or("certificate: no certificate".into())
}

pub(crate) fn is_other_certificate(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData
}
