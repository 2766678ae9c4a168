//! The link to the host: announced, verifying, verified. PUT, CONNECT lines, `agent.conf` and the
//! file of an earlier agent all lead through it.

use crate::host_address::HostAddress;
use crate::time::Uptime;

/// The only address that a guest of LXD's micro VM can reach (P§3.2).
const MICRO_VM: HostAddress = HostAddress { cid: 2, port: 8444 };

/// A host: where it listens, and which certificate it must present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    pub address: HostAddress,
    /// SHA-256 of its certificate (DER).
    pub fingerprint: [u8; 32],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Put,
    /// A CONNECT line, whose address mote calls since that time.
    Connect {
        since: Uptime,
    },
    /// A retry by the agent itself.
    Own,
}

/// A call to the host that checks its address. CONNECT always has one, caused by PUT or a CONNECT
/// line. STARTED and CONNECTED may have one in the background: the agent's own, or one caused by a
/// CONNECT line with the address that was already connected. [`Timer::Call`](super::Timer::Call)
/// begins it, [`Timer::Expire`](super::Timer::Expire) ends it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verification {
    pub(super) attempt: u32,
    pub(super) target: Host,
    pub(super) how: How,
}

/// The host at each step: announced, verifying, verified.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// The latest host from a trusted source: PUT, a file, or a verification.
    announced: Option<Host>,
    /// The address to try after the announced one.
    other: Option<HostAddress>,
    pub(super) verifying: Option<Verification>,
    /// The latest host that was verified, until it is lost.
    verified: Option<Host>,
    /// Number of the latest verification.
    pub(super) attempts: u32,
}

impl Link {
    /// Returns the host that calls go to. A new host replaces a verified one only after its own
    /// verification. While none is verified, calls go to an unverified one: boot scripts may call
    /// before the host answers (P§5.3), and the Go agents call it even after the verification
    /// failed (P§3.3).
    pub(super) fn host(&self) -> Option<Host> {
        self.verified.or(self.announced)
    }

    /// Takes a host from PUT or a file. The host of a CONNECT line is only verified.
    pub(super) fn tell(&mut self, host: Host) {
        (self.announced, self.other) = (Some(host), None);
    }

    /// Swaps a file's address, which may be outdated, with that of a micro VM's host, and back.
    pub(super) fn try_other(&mut self) {
        if let Some(host) = &mut self.announced {
            let other = self.other.unwrap_or(MICRO_VM);
            self.other = Some(core::mem::replace(&mut host.address, other));
        }
    }

    pub(super) fn verify(&mut self, target: Host, how: How) {
        self.attempts = self.attempts.wrapping_add(1);
        self.verifying = Some(Verification { attempt: self.attempts, target, how });
    }

    /// Ends the verification `attempt`, unless another replaced it, and adopts its host if `ok`.
    pub(super) fn end(&mut self, attempt: u32, ok: bool) -> Option<Verification> {
        let ended = self.verifying.take_if(|it| it.attempt == attempt)?;
        if ok {
            (self.announced, self.verified) = (Some(ended.target), Some(ended.target));
        }
        Some(ended)
    }

    /// Records that the verified host does not answer.
    pub(super) fn lose(&mut self) {
        self.verified = None;
    }
}
