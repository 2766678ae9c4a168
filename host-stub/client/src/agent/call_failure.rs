//! Causes of failed calls. A message names the cause and what to do, then the error of the system
//! or of TLS.

use std::io;

use clap::ValueEnum;
use rustls::{AlertDescription, CertificateError};

use crate::Instance;

/// A cause of a failed call. JSON uses clap's names of the causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, thiserror::Error)]
pub enum CallFailure {
    #[error(
        "the agent shows another instance's certificate: its config share (agent.crt) is another \
         instance's or older than init; create the config disk again and reboot"
    )]
    AgentsCertificate,
    /// The process that carries the guest's vsock is running, but no longer serves it.
    #[error(
        "the guest cannot be reached: its vsock device has failed; stop the VM and start it again"
    )]
    #[value(name = "vsock-stopped")]
    DeviceStopped,
    #[error(
        "the agent rejects this host's certificate: its config share (server.crt, agent.conf) is \
         another instance's or older than init; create the config disk again and reboot"
    )]
    HostsCertificate,
    #[error(
        "the guest does not answer on vsock: it has no vsock driver (vmw_vsock_virtio_transport), \
         or it hangs"
    )]
    NoAnswer,
    #[error(
        "no VM on this machine has the instance's context id (init --vsock-cid, QEMU's guest-cid)"
    )]
    NoGuest,
    #[error(
        "no agent listens in the guest (vsock port 8443): it has not been started or has ended, or \
         the guest has no driver for vsock (vmw_vsock_virtio_transport)"
    )]
    Refused,
    #[error("the agent was reached, but did not answer in time")]
    Slow,
    #[error(
        "the guest's vsock device is not running: start vhost-device-vsock before QEMU \
         (mote-host qemu NAME prints how)"
    )]
    Unreachable,
}

impl CallFailure {
    pub fn meant(error: &io::Error) -> Option<Self> {
        use rustls::Error::{AlertReceived, InvalidCertificate};
        // Alerts that agents send when they refuse the certificate.
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

/// A call to an instance's agent that failed for a known cause.
#[derive(Debug, thiserror::Error)]
#[error("{failure}")]
pub struct FailedCall {
    pub instance: String,
    pub failure: CallFailure,
}

impl FailedCall {
    pub fn of(error: &anyhow::Error) -> Option<&Self> {
        error.downcast_ref()
    }

    pub fn cause(error: &anyhow::Error) -> Option<CallFailure> {
        Self::of(error).map(|failed| failed.failure)
    }

    pub fn is_late(error: &anyhow::Error) -> bool {
        let late = |cause: &io::Error| cause.kind() == io::ErrorKind::TimedOut;
        error.downcast_ref().is_some_and(late)
    }

    /// Adds the cause of a failed call to this instance's agent in front of its error.
    pub fn of_failure(
        error: impl Into<anyhow::Error>,
        instance: &Instance,
        failure: CallFailure,
    ) -> anyhow::Error {
        error.into().context(Self { instance: instance.name.clone(), failure })
    }

    /// Like [`Self::of_failure`], if the error reveals a cause; otherwise returns it unchanged.
    pub fn explained(error: anyhow::Error, instance: &Instance) -> anyhow::Error {
        let mut found = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
        match found.find_map(CallFailure::meant) {
            Some(failure) => Self::of_failure(error, instance, failure),
            None => error,
        }
    }
}
