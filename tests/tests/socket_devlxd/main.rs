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
use serde_json::{Value, json};

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
    assert_eq!(pair.ask("GET", volumes), (403, "You must be authenticated\n".into()));
    let waiting = "/1.0/operations/x/wait?timeout=3";
    // mote-host answers with the request as it arrived.
    for (method, path, query, sent, arrived) in [
        ("GET", volumes, "?recursion=1", "", Value::Null),
        // The host refuses a volume without a type, which comes from the path.
        ("POST", volumes, "", r#"{"name":"v"}"#, json!({"name": "v", "type": "custom"})),
        ("GET", waiting, "", "", Value::Null),
    ] {
        let (status, seen) = pair.ask_with(method, path, token, sent);
        assert_eq!(status, 200, "{method} {path}: {seen}");
        let expected =
            json!({"method": method, "target": format!("{path}{query}"), "body": arrived});
        assert_eq!(serde_json::from_str::<Value>(&seen).unwrap(), expected);
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
