//! `POST /1.0/port-forward` of Incus (P§4.7): a connection to a TCP port of the guest.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use mote_agent::http::head::Request;
use mote_agent::json::{self, is_text};

use crate::agent::json_text;
use crate::clock::within;
use crate::exchange::Answer;
use crate::host::error;
use crate::log;
use crate::relay::relay;
use crate::socket::{Socket, dial_tcp};
use crate::stream::Stream;
use crate::upgrade::{Upgrade, switch};

/// How long the guest's port may take to answer; the host itself waits for an hour.
const DIAL: Duration = Duration::from_secs(30);

/// Answers the request: connects, or says why not.
pub(crate) async fn answer(request: &Request<'_>, body: &[u8]) -> Answer {
    if !request.headers.has_token("Upgrade", "tcp") {
        return error(400, "Missing or invalid upgrade header");
    }
    let (name, port) = match target(body) {
        Ok(target) => target,
        Err(why) => return error(400, &why),
    };
    let failed =
        |why: &str| error(500, &format!("Failed connecting to \"{name}\" port {port}: {why}"));
    // No names but this one: looking others up could block, and takes a resolver.
    let address = match name.as_str() {
        "localhost" => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        name => name.parse(),
    };
    let Ok(address) = address else { return failed("not an IP address") };
    match within(DIAL, dial_tcp(SocketAddr::new(address, port))).await {
        Some(Ok(socket)) => Answer::Upgrade(Upgrade::new(|stream| serve(socket, stream))),
        Some(Err(why)) => failed(&why.to_string()),
        None => failed("timed out"),
    }
}

/// Address and port, as they were asked for.
fn target(body: &[u8]) -> Result<(String, u16), String> {
    json::check(body).map_err(|why| format!("Invalid port-forward request: {why}"))?;
    let (mut name, mut port) = ("127.0.0.1".to_owned(), "0".to_owned());
    for (key, value) in json::members(body) {
        if is_text(key, "address") {
            let given = json_text(value).ok_or("Invalid address")?;
            if !given.is_empty() {
                name = given;
            }
        } else if is_text(key, "port") {
            port = String::from_utf8_lossy(value).into_owned();
        }
    }
    match port.parse() {
        Ok(number @ 1..) => Ok((name, number)),
        Ok(0) | Err(_) => Err(format!("Invalid port {port}")),
    }
}

/// Joins both connections until either ends.
async fn serve(made: Socket, stream: Stream) {
    let result = match switch(&stream, "tcp").await {
        Ok(()) => relay(&stream, made).await,
        Err(error) => Err(error),
    };
    if let Err(error) = result {
        log::debug(format_args!("a forwarded connection was cut: {error}"));
    }
    stream.close().await;
}
