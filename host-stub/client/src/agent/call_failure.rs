//! Causes of failed calls. A message names the cause and what to do, then the error of the system
//! or of TLS.

use std::fmt;
use std::io;

use clap::ValueEnum;
use rustls::{AlertDescription, CertificateError};

use crate::instance::Instance;

/// Its names in JSON are those for clap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CallFailure {
    /// The agent's certificate is not the instance's.
    AgentsCertificate,
    /// The process that carries the guest's vsock runs, but no longer serves it.
    #[value(name = "vsock-stopped")]
    DeviceStopped,
    /// The agent refuses the host's certificate.
    HostsCertificate,
    /// The attempt to connect is not answered.
    NoAnswer,
    /// No VM has the instance's context id.
    NoGuest,
    /// The guest's kernel reports that no process listens.
    Refused,
    /// The connection is open, but the answer did not come in time.
    Slow,
    /// The socket that carries the guest's vsock does not exist.
    Unreachable,
}

impl CallFailure {
    pub fn meant(error: &io::Error) -> Option<Self> {
        use rustls::Error::{AlertReceived, InvalidCertificate};
        // Alerts of agents that refuse the certificate.
        const REFUSALS: [AlertDescription; 5] = [
            AlertDescription::AccessDenied,
            AlertDescription::BadCertificate,
            AlertDescription::CertificateExpired,
            AlertDescription::CertificateUnknown,
            AlertDescription::UnknownCA,
        ];
        const OTHER: CertificateError = CertificateError::ApplicationVerificationFailure;
        match error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()) {
            Some(InvalidCertificate(why)) if *why == OTHER => Some(Self::AgentsCertificate),
            Some(AlertReceived(alert)) if REFUSALS.contains(alert) => Some(Self::HostsCertificate),
            Some(_) => None,
            None => (error.kind() == io::ErrorKind::TimedOut).then_some(Self::Slow),
        }
    }
}

impl fmt::Display for CallFailure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::AgentsCertificate => {
                "the agent shows another instance's certificate: its config share (agent.crt) is another \
                 instance's or older than init; create the config disk again and reboot"
            }
            Self::DeviceStopped => {
                "the guest cannot be reached: its vsock device has failed; stop the VM and start it again"
            }
            Self::HostsCertificate => {
                "the agent rejects this host's certificate: its config share (server.crt, \
                 agent.conf) is another instance's or older than init; create the config disk again and \
                 reboot"
            }
            Self::NoAnswer => {
                "the guest does not answer on vsock: it has no driver for it \
                 (vmw_vsock_virtio_transport), or it hangs"
            }
            Self::NoGuest => {
                "no VM on this machine has the instance's context id (init --vsock-cid, QEMU's \
                 guest-cid)"
            }
            Self::Refused => {
                "no agent listens in the guest (vsock port 8443): it has not been started or has \
                 ended, or the guest has no driver for vsock (vmw_vsock_virtio_transport)"
            }
            Self::Slow => "the agent was reached, but did not answer in time",
            Self::Unreachable => {
                "the guest's vsock device is not running: vhost-device-vsock has to be started \
                 before QEMU (mote-host qemu NAME prints how)"
            }
        })
    }
}

/// A call to an instance's agent that failed for a known cause.
#[derive(Debug)]
pub struct FailedCall {
    pub instance: String,
    pub failure: CallFailure,
}

impl FailedCall {
    pub fn of(error: &anyhow::Error) -> Option<&Self> {
        error.downcast_ref()
    }

    pub fn is_late(error: &anyhow::Error) -> bool {
        let late = |cause: &io::Error| cause.kind() == io::ErrorKind::TimedOut;
        error.downcast_ref().is_some_and(late)
    }

    /// Returns an error of a call to this instance's agent, with the cause in front.
    pub fn of_failure(
        error: impl Into<anyhow::Error>,
        instance: &Instance,
        failure: CallFailure,
    ) -> anyhow::Error {
        error.into().context(Self { instance: instance.name.clone(), failure })
    }

    /// Does the same if the cause is known and not yet in the error.
    pub fn explained(error: anyhow::Error, instance: &Instance) -> anyhow::Error {
        let found = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
        match found.filter_map(CallFailure::meant).next() {
            Some(failure) if Self::of(&error).is_none() => {
                Self::of_failure(error, instance, failure)
            }
            Some(_) | None => error,
        }
    }
}

impl fmt::Display for FailedCall {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.failure.fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::Flavour;
    use anyhow::anyhow;

    #[test]
    fn shows_the_cause_first_and_once() {
        let vm = Instance::sample(Flavour::Lxd, &[]);
        let denied = rustls::Error::AlertReceived(AlertDescription::AccessDenied);
        let raw = io::Error::new(io::ErrorKind::InvalidData, denied);
        let explained = FailedCall::explained(anyhow::Error::from(raw).context("agent"), &vm);
        let explained = FailedCall::explained(explained, &vm).context("exec");
        let text = format!("{explained:#}");
        assert!(text.starts_with("exec: the agent rejects this host's certificate: "), "{text}");
        assert!(text.ends_with(": agent: received fatal alert: AccessDenied"), "{text}");
        assert_eq!(text.matches("the agent rejects").count(), 1, "{text}");
        let failed = FailedCall::of(&explained).unwrap();
        assert_eq!(
            (failed.instance.as_str(), failed.failure),
            ("vm1", CallFailure::HostsCertificate)
        );
        assert!(FailedCall::of(&FailedCall::explained(anyhow!("something else"), &vm)).is_none());
    }
}
