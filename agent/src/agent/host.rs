//! The host: its address, calls to it and their results, and the repetition of Ready.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use mote_core::devlxd::ready::{Ready, ReadyState, host_state, write_state};
use mote_core::dial::{CALL_TIMEOUT, Call, Reply};
use mote_core::hostapi::host_info::HostInfo;
use mote_core::json::{Document, Value};
use mote_core::status::{Host, State};

use crate::agent::{Agent, Called, REFUSED};
use crate::built::BoxFuture;
use crate::config::known_host;
use crate::net::host_call::{CallError, Link, call};
use crate::net::tls::pem_fingerprint;
use crate::runtime::{log, now, within};

/// Time limit for verification (`GET /1.0`); the host waits 3 s for the PUT's answer (P§3.2).
const VERIFY: Duration = Duration::from_millis(2500);
/// Maximum length of the host's error text that mote reports, in bytes.
const SAID: usize = 200;

impl Agent {
    /// Opens devlxd before the host calls (P§1.3), with the host info that an earlier agent of this
    /// boot kept or with `agent.conf`.
    pub(crate) fn find_host(&self, conf: Option<&[u8]>) {
        let kept = known_host::recall(&self.options.root);
        if kept.is_some() && self.called.get() == Called::Never {
            self.called.set(Called::Before);
        }
        let sources = [(kept.as_deref(), "/run/mote/known-host"), (conf, "agent.conf")];
        for (bytes, source) in sources {
            let Some(bytes) = bytes else { continue };
            match read_host_info(bytes) {
                Ok((host, guest_api)) => {
                    log::info(format_args!("host address {} (from {source})", host.address));
                    self.status(|status| status.know(now(), host));
                    return self.allow_devlxd(guest_api);
                }
                Err(why) => self.report_error(format_args!("{source} is unusable: {why}")),
            }
        }
    }

    /// Returns a link to that host: the last one, or a new one with its TLS state if the
    /// certificate is the same. Errors: those of
    /// [`Identity::client`](crate::net::tls::Identity::client).
    fn link_to(&self, host: Host) -> io::Result<Rc<Link>> {
        let tls = match &*self.link.borrow() {
            Some(last) if last.host == host => return Ok(last.clone()),
            Some(last) if last.host.fingerprint == host.fingerprint => last.tls.clone(),
            Some(_) | None => self.identity.client(host.fingerprint)?,
        };
        Ok(Rc::new(Link { transport: self.options.transport.clone(), host, tls }))
    }

    /// Starts over, because the host may be another one or know another copy of this VM: drops the
    /// tickets and announces the agent, which repeats Ready after the verification.
    pub(crate) fn restart_link(&self) {
        if let Some(link) = &*self.link.borrow() {
            link.tls.tickets.forget();
        }
        self.status(|status| {
            status.host_lost(now());
            status.port_appeared(now());
        });
    }

    /// Verifies a host with a call and reports the result to the status machine. Returns the state
    /// that the host has recorded for this instance, which decides whether Ready is repeated;
    /// `None` if a newer verification has begun. Errors: [`CallError`], logged already, after any
    /// status but 200 and 403, or no answer within [`VERIFY`].
    pub(crate) async fn verify(
        &self,
        host: Host,
        attempt: u32,
    ) -> Result<Option<String>, CallError> {
        let result = self.try_verify(host).await;
        let before = self.state();
        let counts = self.status(|status| match &result {
            Err(failed) if failed.is_local_shortage() => status.not_made(now(), attempt),
            result => status.verified(now(), attempt, result.is_ok()),
        });
        match result {
            Ok(_) if !counts => Ok(None),
            Ok((link, host_state)) => {
                // This link has the session ticket from the call.
                *self.link.borrow_mut() = Some(link);
                Ok(host_state)
            }
            Err(failed) => {
                if failed.is_local_shortage() {
                    self.shortage(failed.why());
                } else if counts {
                    self.report_host_error(before, failed.why());
                }
                Err(failed)
            }
        }
    }

    /// Calls the host. 403 is a valid answer: the host may be about to enable devlxd (P§3.3).
    async fn try_verify(&self, host: Host) -> Result<(Rc<Link>, Option<String>), CallError> {
        let link = self.link_to(host)?;
        let request = Call::get("/1.0", VERIFY);
        let reply = match within(VERIFY, call(&link, &request, &|| false)).await {
            Some(reply) => reply?,
            None => return Err("the host took too long to answer".into()),
        };
        match reply.status {
            200 => Ok((link, host_state(&reply.body))),
            403 => Ok((link, None)),
            401 => Err(format!("{REFUSED}: its files may be another instance's").into()),
            status => {
                let said = error_text(&reply.body);
                Err(format!("the host answered GET /1.0 with status {status}: {said}").into())
            }
        }
    }

    /// Returns the host's answer with the devices for guests (P§5.3); empty if there is none.
    pub(crate) async fn devices(&self) -> Vec<u8> {
        let request = Call::get("/1.0/devices", CALL_TIMEOUT);
        let reply = self.ask(&request, &|| false).await.ok();
        reply.filter(|reply| reply.status == 200).map_or_else(Vec::new, |reply| reply.body)
    }

    /// Makes a call to the host and reports its result to the status machine.
    /// Errors: like [`call`], or the host's address is unknown.
    pub(crate) async fn ask(
        &self,
        request: &Call<'_>,
        longer: &dyn Fn() -> bool,
    ) -> Result<Reply, CallError> {
        let link = self.known_link()?;
        let result = call(&link, request, longer).await;
        self.judge(link.host, result.as_ref().map(|reply| reply.status));
        result
    }

    /// Returns the link to the host. Errors: [`CallError`] while the host's address is unknown.
    pub(crate) fn known_link(&self) -> Result<Rc<Link>, CallError> {
        let host = self.status.borrow().host();
        let link = self.link_to(host.ok_or("the host has not sent its address yet")?)?;
        *self.link.borrow_mut() = Some(link.clone());
        Ok(link)
    }

    /// Reports a call's result to the status machine: the HTTP status, or why there was none.
    pub(crate) fn judge(&self, host: Host, result: Result<u16, &CallError>) {
        let news = match result {
            Ok(status) => self.status.borrow_mut().call_answered(now(), status),
            Err(failed) if failed.is_local_shortage() => {
                self.shortage(failed.why());
                false
            }
            // Another host was verified since the call began.
            Err(_) if self.status.borrow().host() != Some(host) => false,
            Err(failed) => {
                // Once only, because guest clients can repeat it; each verification is reported, too.
                if self.state() == State::Connected {
                    self.report_host_error(State::Connected, failed.why());
                }
                self.status.borrow_mut().host_lost(now());
                true
            }
        };
        if news {
            self.status_changed.raise();
        }
    }

    /// Called after a verification: repeats the ready state if the host has forgotten it.
    pub(crate) async fn replay_ready(&self, host_state: Option<&str>) {
        let Some(host_state) = host_state else { return };
        if !self.options.replay_ready {
            return;
        }
        if self.report(&|ready| ready.on_connected(host_state)).await.is_some() {
            log::info(format_args!("ready replayed"));
        }
    }

    /// Sends the host the state that `choose` returns once no other report is in progress. Returns
    /// the state if the host has accepted it.
    pub(crate) fn report<'a>(
        &'a self,
        choose: &'a dyn Fn(&Ready) -> Option<ReadyState>,
    ) -> BoxFuture<'a, Option<ReadyState>> {
        Box::pin(async {
            // This is dropped after the lock.
            let _released = self.ready_released.raised_on_drop();
            let _exclusive = self.ready_released.until(|| self.ready.exclusive()).await;
            let state = choose(&self.ready)?;
            self.tell(state).await.then_some(state)
        })
    }

    /// Sends the host this state; returns whether it accepted it.
    async fn tell(&self, state: ReadyState) -> bool {
        let body = Document::new(32, |json| write_state(json, state.name()));
        let request = Call {
            method: "PATCH",
            body: Some(body.value().raw().as_bytes()),
            extra: &[("Content-Type", "application/json")],
            ..Call::get("/1.0", CALL_TIMEOUT)
        };
        match self.ask(&request, &|| false).await {
            Ok(reply) if reply.status == 200 => return true,
            Ok(reply) => {
                self.report_error(format_args!(
                    "{} rejected: the host answered {}",
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

/// Reads host info; returns the host, and whether it has enabled devlxd.
/// Errors: why the host info or its certificate is unusable.
pub(crate) fn read_host_info(host_info: &[u8]) -> Result<(Host, bool), String> {
    let info = HostInfo::parse(host_info).map_err(|why| why.to_string())?;
    let mut pem = Vec::new();
    info.certificate_pem(|piece| pem.extend_from_slice(piece));
    let fingerprint = pem_fingerprint(&pem)?;
    Ok((Host { address: info.address, fingerprint }, info.guest_api))
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
    fn shortens_host_text_to_one_line() {
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
