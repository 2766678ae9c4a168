//! The host: its address, calls to it and their results, and the repetition of Ready.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use mote_core::devlxd::ready::{ReadyState, host_state, write_state};
use mote_core::dial::Retry;
use mote_core::host_address::HostAddress;
use mote_core::hostapi::host_info::HostInfo;
use mote_core::json::{Document, Value};

use crate::agent::errors::{Called, REFUSED};
use crate::agent::{Agent, READY_LOCK_PERMITS};
use crate::config::known_host;
use crate::net::host_call::{Call, CallError, HostReply, Link, call};
use crate::net::tls::{Pin, certificate_bytes};
use crate::net::tls_error::Unusable;
use crate::runtime::clock::{now, within};
use crate::runtime::log;

/// A verification is one `GET /1.0`; the host waits 3 s for our answer to its PUT (P§3.2).
const VERIFY: Duration = Duration::from_millis(2500);
/// Time limit for the host's answer to an ordinary request.
pub(crate) const HOST_CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest part of the host's error text that is passed on, bytes.
const SAID: usize = 200;

impl Agent {
    /// Opens devlxd before the host calls (P§1.3), with the host info that an earlier agent of this boot
    /// kept or with `agent.conf`. It is used before it is verified.
    pub(crate) fn find_host(&self, conf: Option<&[u8]>) {
        let kept = known_host::recall(&self.options.root);
        if kept.is_some() && self.called.get() == Called::Never {
            self.called.set(Called::Before);
        }
        let sources = [(kept.as_deref(), "/run/mote/known-host"), (conf, "agent.conf")];
        for (bytes, source) in sources {
            let Some(bytes) = bytes else { continue };
            let taken = HostInfo::parse(bytes).map_err(|why| why.to_string()).and_then(|info| {
                match self.take(&info) {
                    Ok(link) => Ok((link.address, info.guest_api)),
                    Err(why) => Err(why.to_string()),
                }
            });
            match taken {
                Ok((address, guest_api)) => {
                    log::info(format_args!("host address {address} (from {source})"));
                    self.status(|status| status.know(now(), address));
                    return self.allow_devlxd(guest_api);
                }
                Err(why) => self.report_error(format_args!("{source} is unusable: {why}")),
            }
        }
    }

    /// Adopts the host info: address and certificate. Session tickets are kept only if the certificate
    /// is the same.
    ///
    /// # Errors
    /// Why the certificate is unusable; nothing is changed then.
    pub(crate) fn take(&self, info: &HostInfo<'_>) -> Result<Rc<Link>, Unusable> {
        let mut pem = Vec::new();
        info.certificate_pem(|piece| pem.extend_from_slice(piece));
        let pin = Pin::Certificate(certificate_bytes(&pem, "certificate")?);
        let link = self.link_to(info.address, pin)?;
        *self.link.borrow_mut() = Some(link.clone());
        self.status(|status| status.trust_known(true));
        Ok(link)
    }

    /// Returns a link to that address, with the current link's TLS state if the pin is the same.
    ///
    /// # Errors
    /// As of [`Identity::client`](crate::net::tls::Identity::client).
    pub(crate) fn link_to(&self, address: HostAddress, pin: Pin) -> io::Result<Rc<Link>> {
        let known = self.link.borrow().clone();
        let tls = match known {
            Some(known) if known.pin == pin => known.tls.clone(),
            Some(_) | None => self.identity.client(pin.clone())?,
        };
        Ok(Rc::new(Link { transport: self.options.transport.clone(), address, pin, tls }))
    }

    /// Starts over with a host that may be another one, or that knows another copy of this VM:
    /// drops the tickets and announces the agent. After the verification, Ready is repeated.
    pub(crate) fn restart_link(&self) {
        if let Some(link) = &*self.link.borrow() {
            link.tls.tickets.forget();
        }
        self.status(|status| {
            status.host_lost(now());
            status.port_appeared(now());
        });
    }

    /// Checks that the host answers at `link`. 403 is an answer: devlxd may be just about to be
    /// switched on (P§3.3). Returns the host's view of our state, if the answer has it.
    ///
    /// # Errors
    /// [`CallError`] after any other status, or no answer within [`VERIFY`].
    pub(crate) async fn verify(&self, link: &Link) -> Result<Option<String>, CallError> {
        let request = Call {
            method: "GET",
            target: "/1.0",
            body: None,
            extra: &[],
            timeout: VERIFY,
            retry: Retry::Dial,
        };
        let reply = match within(VERIFY, call(link, &request, &|| false)).await {
            Some(reply) => reply?,
            None => return Err("the host took too long to answer".into()),
        };
        match reply.status {
            200 => Ok(host_state(&reply.body)),
            403 => Ok(None),
            401 => Err(format!("{REFUSED}: are these another instance's files?").into()),
            status => {
                let said = error_text(&reply.body);
                Err(format!("the host answered GET /1.0 with status {status}: {said}").into())
            }
        }
    }

    /// Returns the host's answer with the devices that it shows guests (P§5.3); empty if there is
    /// none.
    pub(crate) async fn devices(&self) -> Vec<u8> {
        let request = Call {
            method: "GET",
            target: "/1.0/devices",
            body: None,
            extra: &[],
            timeout: HOST_CALL_TIMEOUT,
            retry: Retry::Dial,
        };
        let reply = self.ask(&request, &|| false).await.ok();
        reply.filter(|reply| reply.status == 200).map_or_else(Vec::new, |reply| reply.body)
    }

    /// Makes a call to the host and reports its result to the status machine.
    ///
    /// # Errors
    /// Like [`call`], or the host's address is unknown.
    pub(crate) async fn ask(
        &self,
        request: &Call<'_>,
        longer: &dyn Fn() -> bool,
    ) -> Result<HostReply, CallError> {
        let link = self.known_link()?;
        let result = call(&link, request, longer).await;
        self.judge(result.as_ref().map(|reply| reply.status));
        result
    }

    /// The link to the host.
    ///
    /// # Errors
    /// [`CallError`] while the host's address is unknown.
    pub(crate) fn known_link(&self) -> Result<Rc<Link>, CallError> {
        let link = self.link.borrow().clone();
        link.ok_or_else(|| "the host has not told its address yet".into())
    }

    /// Reports a call's result to the status machine: the HTTP status, or why there was none.
    pub(crate) fn judge(&self, result: Result<u16, &CallError>) {
        let news = match result {
            Ok(status) => self.status.borrow_mut().call_answered(now(), status),
            Err(failed) if failed.is_local_shortage() => {
                self.shortage(failed.why());
                false
            }
            Err(failed) => {
                self.report_host_error(self.state(), failed.why());
                self.status.borrow_mut().host_lost(now());
                true
            }
        };
        if news {
            self.status_changed.raise();
        }
    }

    /// After a connection was verified: sends the ready state again if the host has forgotten it.
    pub(crate) async fn replay_ready(&self, host_state: Option<&str>) {
        let Some(host_state) = host_state else { return };
        if !self.options.replay_ready {
            return;
        }
        let _exclusive = self.ready_lock.clone().take_many(READY_LOCK_PERMITS).await;
        let Some(state) = self.ready.borrow().on_connected(host_state) else { return };
        if self.tell(state).await {
            log::info(format_args!("ready replayed"));
        }
    }

    /// Sends the host this state; returns whether it accepted it.
    pub(crate) async fn tell(&self, state: ReadyState) -> bool {
        let body = Document::new(32, |json| write_state(json, state.name()));
        let request = Call {
            method: "PATCH",
            target: "/1.0",
            body: Some(body.value().raw().as_bytes()),
            extra: &[("Content-Type", "application/json")],
            timeout: HOST_CALL_TIMEOUT,
            retry: Retry::Dial,
        };
        match self.ask(&request, &|| false).await {
            Ok(reply) if reply.status == 200 => return true,
            Ok(reply) => {
                self.report_error(format_args!(
                    "{} not taken: the host answered {}",
                    state.name(),
                    reply.status
                ));
            }
            // Logged by `judge`.
            Err(_) => {}
        }
        false
    }
}

/// Returns the first line of an error's body, at most [`SAID`] bytes: of an envelope's `error`, or
/// of the body itself.
fn error_text(body: &[u8]) -> String {
    let said = Value::parse(body).ok().and_then(|body| body.member("error"));
    let enveloped = said.and_then(|text| text.string().ok());
    let mut text = enveloped.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
    text.truncate(text.find('\n').unwrap_or(SAID).min(text.floor_char_boundary(SAID)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_says_is_one_short_line() {
        for (body, text) in [
            ("Instance not found\n", "Instance not found"),
            ("{\"error\":\"Instance not found\",\"error_code\":500}", "Instance not found"),
            ("", ""),
        ] {
            assert_eq!(error_text(body.as_bytes()), text);
        }
        let long = format!("x{}", "\u{e9}".repeat(SAID));
        assert_eq!(error_text(long.as_bytes()).len(), SAID - 1);
    }
}
