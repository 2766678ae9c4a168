//! devlxd on real sockets: requests of guests, invalid requests, and faults of the host.

mod eviction;
mod faults;
mod floods;
mod life;
mod ready;
mod verification;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use mote_tests::{NAME, Pair, agent};

fn lxd() -> Pair {
    Pair::start(
        "lxd",
        &[
            "user.foo=bar",
            "user.quoted=a \"b\"\n\u{1f600}",
            "cloud-init.user-data=#cloud-config\n",
            "security.devlxd.images=true",
            "mote.image.size=209715200",
            "security.devlxd.management.volumes=true",
            "mote.bearer=secret",
            "ubuntu_pro.guest_attach=on",
        ],
    )
}

/// Returns the head of an answer and a reader for the rest.
fn answered(stream: UnixStream) -> (String, BufReader<UnixStream>) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).expect("a line"), 0, "an end after {head:?}");
    }
    (head, reader)
}

/// The core's tests cover each route (`devlxd/forward`, `devlxd/exchange`).
#[test]
fn token_operations_and_conditions_pass_through() {
    let pair = lxd();
    let token = "Authorization: Bearer secret\r\n";
    let volumes = "/1.0/storage-pools/p/volumes/custom";
    let refused = (403, "You must be authenticated\n".into());
    assert_eq!(pair.ask("GET", volumes), refused);
    assert_eq!(pair.ask_with("GET", volumes, token, ""), (200, "[]\n".into()));
    let (status, operation) = pair.ask_with("POST", volumes, token, "{\"name\":\"v\"}");
    assert!(status == 200 && operation.contains("\"Running\""), "{operation}");
    let operation: serde_json::Value = serde_json::from_str(&operation).unwrap();
    let operation = format!("/1.0/operations/{}", operation["id"].as_str().unwrap());
    for (timeout, status) in [("0", 500), ("3", 200), ("a", 400)] {
        let waited = format!("{operation}/wait?timeout={timeout}");
        assert_eq!(pair.ask_with("GET", &waited, token, "").0, status);
    }
    let instance = format!("/1.0/instances/{NAME}");
    let stale = format!("{token}If-Match: \"stale\"\r\n");
    assert_eq!(pair.ask_with("PATCH", &instance, &stale, "{\"devices\":{}}").0, 412);
}

#[test]
fn passes_images_on_in_constant_memory() {
    let pair = lxd();
    let before = pair.memory("VmHWM:");
    let mut stream = pair.connect();
    stream
        .write_all(b"GET /1.0/images/ab/export HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .unwrap();
    let (_, mut reader) = answered(stream);
    let copied = std::io::copy(&mut reader, &mut std::io::sink()).unwrap();
    assert_eq!(copied, 200 * 1024 * 1024);
    let grown = pair.memory("VmHWM:") - before;
    assert!(grown < 1024, "grew by {grown} kB");
}

#[test]
fn config_prints_keys_of_any_name() {
    let config = ["user.%2F%=p", "user.?#=q", "user.a b=s", "user.empty=", "user.e\u{e9}=u"];
    let config = [&config[..], &["user.k8s.io/role=cp", "user.last=z"]].concat();
    for flavour in ["lxd", "lxd-5.0", "incus"] {
        let pair = Pair::start(flavour, &config);
        let mut command = agent::command(&pair.scratch.0, flavour, &pair.host.share);
        let output = command.arg("config").stdout(Stdio::piped()).stderr(Stdio::piped()).output();
        let output = output.unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let lines = config.iter().map(|pair| pair.replacen('=', ": ", 1) + "\n");
        assert_eq!(printed, lines.collect::<String>(), "{flavour}");
        assert_eq!(output.status.code(), Some(0));
    }
}
