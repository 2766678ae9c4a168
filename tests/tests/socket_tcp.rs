//! A third transport: an agent built with the feature `tcp` uses TCP instead of vsock. Relays
//! connect it to the usual host. The layers above the transport must not notice.

use std::net::Ipv4Addr;

use mote_tests::clients::bridge::carry;
use mote_tests::prelude::*;

const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn the_host_works_by_tcp_as_by_vsock() {
    let scratch = Scratch::new();
    let sockets = scratch.0.join("vs");
    let mut host = Host::on_sockets(&scratch.0, &sockets, "lxd", &["user.a=b"]);

    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let agent_port = free.local_addr().expect("its number").port();
    drop(free);
    let calls = UnixListener::bind(scratch.0.join("vs.listen_8443")).expect("the agent's stand-in");
    thread::spawn(move || {
        for call in calls.incoming().flatten() {
            // As with vsock, calls are refused until the agent listens.
            if let Ok(agent) = TcpStream::connect((Ipv4Addr::LOCALHOST, agent_port)) {
                thread::spawn(move || carry(call, agent));
            }
        }
    });
    host.start();
    let conf = fs::read(host.share.join("agent.conf")).expect("agent.conf");
    let conf: Value = serde_json::from_slice(&conf).expect("JSON");
    let port = conf["port"].as_u64().expect("the host's port");
    let answers =
        TcpListener::bind((Ipv4Addr::LOCALHOST, u16::try_from(port).expect("a TCP port")));
    let answers = answers.expect("the host's stand-in");
    thread::spawn(move || {
        for call in answers.incoming().flatten() {
            if let Ok(host) = UnixStream::connect(format!("{}_{port}", sockets.display())) {
                thread::spawn(move || carry(host, call));
            }
        }
    });

    let log = scratch.0.join("agent.log");
    let _agent = Process::start(
        Command::new(tool("MOTE_AGENT_TCP", "target/debug/mote-agent"))
            .args([Path::new("--root"), &scratch.0.join("root")])
            .args([Path::new("--config-dir"), &host.share])
            .args(["--flavour", "lxd", "--vsock-tcp", &agent_port.to_string()])
            .stdin(Stdio::null())
            .stderr(File::create(&log).expect("a log")),
    );
    // There is no status port, so the log shows the state.
    until("CONNECTED", LIMIT, || {
        fs::read_to_string(&log).unwrap_or_default().contains(" CONNECTED")
    });
    assert_eq!(host.run(&["exec", "vm1", "--", "sh", "-c", "echo by TCP"]), "by TCP\n");
}
