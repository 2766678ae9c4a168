//! TLS, reduced to certificates and resumption: one message in each direction, in which
//! certificates and tickets are numbers.

use crate::sim_prelude::*;

/// Length of a message, in bytes.
const LENGTH: usize = 16;

pub(crate) type Certificate = u64;

/// A hello of either side: its certificate, and a ticket or 0. The client's ticket is the one to
/// resume with, the server's is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) certificate: Certificate,
    pub(crate) ticket: u64,
}

impl Hello {
    pub(crate) async fn send(self, stream: &Stream) -> Result<(), Broken> {
        let mut out = [0; LENGTH];
        out[..8].copy_from_slice(&self.certificate.to_le_bytes());
        out[8..].copy_from_slice(&self.ticket.to_le_bytes());
        stream.write_all(&out).await
    }

    pub(crate) async fn receive(stream: &Stream) -> Result<Self, Broken> {
        let mut bytes = [0; LENGTH];
        stream.read_exact(&mut bytes).await?;
        let (certificate, ticket) = bytes.split_at(8);
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        Ok(Self { certificate: number(certificate), ticket: number(ticket) })
    }
}
