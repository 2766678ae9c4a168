//! The CONNECT dialect.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use mote_client::net::tls::certificate;
use mote_machine::Pty;
use ring::digest::{SHA256, digest};

use crate::peers::agent::Agent;
use crate::peers::host::{Host, SOON, text, wait};

fn init(host: &Host, path: &str, extra: &[&str]) {
    let prefix = host.path("vm1.p");
    let mut args = vec!["init", "vm1", "--flavour", "lxd", "--vsock-plain", text(&prefix)];
    args.extend(["--serial", path]);
    args.extend(extra);
    host.run(&args);
}

/// Returns a host with an instance of this dialect, and the listener at its port.
fn instance(extra: &[&str]) -> (Host, UnixListener) {
    let host = Host::new();
    let path = host.path("serial");
    init(&host, text(&path), extra);
    (host, UnixListener::bind(&path).unwrap())
}

fn connect(host: &Host) -> String {
    let hash = digest(&SHA256, &certificate(&host.path("server.crt")).unwrap());
    let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("CONNECT 2:{} {hex}\n", host.port())
}

struct Port(BufReader<UnixStream>);

impl Port {
    fn accept(listener: &UnixListener) -> Self {
        let stream = listener.accept().unwrap().0;
        stream.set_read_timeout(Some(SOON)).unwrap();
        Self(BufReader::new(stream))
    }

    fn say(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    fn is_quiet(&mut self) -> bool {
        let stream = self.0.get_mut();
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let quiet = stream.read(&mut [0; 1]).is_err();
        stream.set_read_timeout(Some(SOON)).unwrap();
        quiet
    }
}

#[test]
fn sends_connect_at_start_and_after_each_started_and_no_put() {
    let (mut host, listener) = instance(&[]);
    let share = host.share("vm1");
    let socket = host.path("vm1.p.listen_8443");
    let agent = Agent::start(&socket, &share, "lxd-agent");
    // Certificate and devlxd switch are in the share from the beginning. The port may be outdated.
    assert_eq!(host.conf()["certificate"], host.certificate().as_str());
    assert_eq!(host.conf()["devlxd"], true);
    host.start();
    let connect = connect(&host);
    let mut port = Port::accept(&listener);
    assert_eq!(port.line(), connect, "at once");
    port.say("STAR");
    port.say("TED\nSTARTED\n");
    assert_eq!((port.line(), port.line()), (connect.clone(), connect.clone()));
    assert_eq!(host.state()["state"], "STARTED");
    port.say("CONNECTED\n");
    host.wait_for("CONNECTED");
    assert!(port.is_quiet());
    // An agent that crashed sends STARTED again, without STOPPED before.
    port.say("STARTED\n");
    assert_eq!(port.line(), connect);
    port.say("STOPPED\n");
    host.wait_for("STOPPED");
    assert!(port.is_quiet());
    assert_eq!(agent.lines().len(), 0);
    // After a kill, the host opens the port again and announces its new address.
    host.kill();
    host.start();
    let mut port = Port::accept(&listener);
    assert_eq!(port.line(), self::connect(&host));
    assert_ne!(self::connect(&host), connect, "the port is random");
}

#[test]
fn shares_memory_and_ignores_its_own_line() {
    let (mut host, listener) = instance(&["--shared-memory"]);
    host.start();
    let connect = connect(&host);
    let mut port = Port::accept(&listener);
    assert_eq!(port.line(), connect);
    port.say("STARTED\n");
    assert_eq!((port.line().as_str(), port.line()), ("STARTED\n", connect.clone()));
    // The host ignores the echo of its own line.
    port.say(&connect);
    assert_eq!(port.line(), connect);
    assert!(port.is_quiet(), "and says nothing more");
    assert_eq!(host.state()["last_line"], "STARTED");
}

#[test]
fn reopens_a_closed_port() {
    let (mut host, listener) = instance(&[]);
    host.start();
    for _ in 0..2 {
        let mut port = Port::accept(&listener);
        assert_eq!(port.line(), connect(&host));
        port.say("STARTED\nCONNECTED\n");
        host.wait_for("CONNECTED");
        drop(port);
        host.wait_for("UNKNOWN");
    }
}

#[test]
fn works_on_a_tty() {
    let mut host = Host::new();
    let (mut master, _theirs) = Pty::open(80, 24).unwrap();
    init(&host, &master.path().unwrap(), &[]);
    host.start();
    let limit = mote_machine::patient(SOON);
    let line = master.until("\n", limit).unwrap();
    assert_eq!(line, connect(&host), "raw: no carriage return, no echo");
    master.say("STARTED\n").unwrap();
    assert_eq!(master.until("\n", limit).unwrap(), connect(&host));
    wait("STARTED", SOON, || (host.state()["state"] == "STARTED").then_some(()));
}
