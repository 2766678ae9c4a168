//! `port-forward`: listens here and forwards connections through the agent into the guest: for Incus
//! by P§4.7, where both ends are closed if one side ends a connection, for LXD by exec of
//! `mote-agent connect`.

use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::json;

use mote_client::daemon;
use mote_client::net::slots::{AT_ONCE, Slots, accepted, raise_descriptor_limit};
use mote_client::{Agent, Flavour, complain, connecting};

#[derive(Debug, Args)]
pub(crate) struct ForwardArgs {
    /// The instance
    name: String,
    /// Local address and port; for port 0, the chosen port is printed
    #[arg(value_name = "LISTEN_ADDRESS:PORT")]
    listen: String,
    /// Address and port in the guest
    #[arg(value_name = "[ADDRESS:]PORT", value_parser = parse)]
    target: Target,
}

/// An address and port in the guest.
type Target = (Option<String>, u16);

pub(crate) fn run(root: &Path, args: &ForwardArgs) -> Result<()> {
    let ForwardArgs { name, listen, target: (address, port) } = args;
    let port = *port;
    let agent = Arc::new(daemon::reach(root, name)?);
    let listener = TcpListener::bind(listen).with_context(|| listen.clone())?;
    // For port 0, print the chosen one.
    writeln!(std::io::stdout(), "{}", listener.local_addr()?)?;
    raise_descriptor_limit();
    let slots = Slots::new(AT_ONCE);
    for stream in accepted(listener.incoming()) {
        let (agent, address) = (agent.clone(), address.clone());
        slots.serve(move || {
            let carried = if agent.instance.flavour == Flavour::Incus {
                carry(&agent, &address, port, &stream)
            } else {
                join(&agent, address.as_deref(), port, stream)
            };
            if let Err(error) = carried {
                complain(&format!("{error:#}"));
            }
        });
    }
    Ok(())
}

fn parse(target: &str) -> Result<Target> {
    let (address, port) = match target.rsplit_once(':') {
        Some((address, port)) => (Some(address.trim_matches(['[', ']']).to_owned()), port),
        None => (None, target),
    };
    let port = port.parse().ok().filter(|port| *port > 0);
    Ok((address, port.with_context(|| format!("{target} is not a port"))?))
}

fn carry(agent: &Agent, address: &Option<String>, port: u16, stream: &TcpStream) -> Result<()> {
    let mut body = json!({ "port": port });
    if let Some(address) = address {
        body["address"] = json!(address);
    }
    let body = body.to_string();
    let request = ("POST", "/1.0/port-forward");
    let guest = agent.upgrade(request, "tcp", body.as_bytes(), connecting())?;
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let _cut = std::io::copy(&mut &*stream, &mut &guest);
            end(stream, &guest);
        });
        let _cut = std::io::copy(&mut &guest, &mut &*stream);
        end(stream, &guest);
    });
    Ok(())
}

/// Runs `mote-agent connect` in the guest with the connection as its input and output, and waits
/// for its end. It prints its own errors.
fn join(agent: &Agent, address: Option<&str>, port: u16, stream: TcpStream) -> Result<()> {
    let target = match address.unwrap_or("127.0.0.1") {
        address if address.contains(':') => format!("[{address}]:{port}"),
        address => format!("{address}:{port}"),
    };
    let mut exec = Command::new(std::env::current_exe()?);
    exec.arg("--dir").arg(&agent.root).args(["exec", &agent.instance.name, "-T", "--"]);
    exec.args(["mote-agent", "connect", &target]);
    let input = OwnedFd::from(stream.try_clone()?);
    exec.stdin(input).stdout(OwnedFd::from(stream)).status()?;
    Ok(())
}

fn end(stream: &TcpStream, guest: &UnixStream) {
    let _gone = stream.shutdown(Shutdown::Both);
    let _gone = guest.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_optional() {
        assert_eq!(parse("80").unwrap(), (None, 80));
        assert_eq!(parse("10.0.0.1:80").unwrap(), (Some("10.0.0.1".into()), 80));
        assert_eq!(parse("[::1]:80").unwrap(), (Some("::1".into()), 80));
        for wrong in ["", "0", "x", "1.1.1.1:", "1.1.1.1:65536"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
