//! Agents whose answers, and guests whose requests, are too long, too slow or endless. The host
//! abandons each at a bounded cost and continues.

use std::io::Write;
use std::time::Duration;

use mote_client::Message;

use crate::peers::agent::{
    self, Stream, accept_websocket, drip, greet, open_command, operation, whole,
};
use crate::peers::guest::Guest;
use crate::peers::host::{Host, SOON, wait};

/// Memory limit of a command, KiB, including its program and its threads' stacks.
const MEMORY: u32 = 300 * 1024;

fn refused(host: &Host, args: &[&str]) -> String {
    let error = host.refused(MEMORY, args);
    assert!(error.len() < 10_000, "{} bytes", error.len());
    error
}

/// Returns a host whose agent greets, and answers everything else with `answer`.
fn with_agent(
    answer: impl Fn(&Message, &mut Stream) -> std::io::Result<()> + Send + Sync + 'static,
) -> Host {
    agent::host(move |request, mut stream| match request.target.as_str() {
        "/1.0" => greet(&mut stream, "lxd-agent"),
        _ => answer(request, &mut stream),
    })
}

/// Like [`with_agent`], with an answer that does not depend on the request.
fn world(answer: impl Fn(&mut Stream) -> std::io::Result<()> + Send + Sync + 'static) -> Host {
    with_agent(move |_, stream| answer(stream))
}

#[test]
fn rejects_a_long_answer_before_reading_or_parsing_it() {
    let many = format!(r#"{{"type":"sync","metadata":[{}0]}}"#, "0,".repeat(3 << 20));
    for (answer, told) in
        [("x".repeat(60 << 20), "body is longer than 8 MiB"), (many, "more than 500000 values")]
    {
        let host = world(move |stream| whole(stream, "200 OK", &answer));
        for command in ["state", "metrics"] {
            let error = refused(&host, &[command, "vm1"]);
            assert!(error.contains(told), "{command}: {error}");
        }
    }
}

#[test]
fn reads_a_slow_agents_answer_and_reports_it_as_slow() {
    let host = world(|stream| {
        std::thread::sleep(Duration::from_millis(3500));
        whole(stream, "200 OK", r#"{"type":"sync","metadata":{"processes":7}}"#)
    });
    for command in ["state", "metrics"] {
        let output = host.run_within(MEMORY, &[command, "vm1"]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{command}: {error}");
        assert!(error.contains("a real host gives up after 3.0 s"), "{command}: {error}");
    }
}

#[test]
fn truncates_an_agents_error_message() {
    let long = format!(r#"{{"type":"error","error":"{}"}}"#, "no ".repeat(1 << 20));
    let host = world(move |stream| whole(stream, "500 Internal Server Error", &long));
    for args in [&["state", "vm1"][..], &["exec", "vm1", "--", "true"], &["file", "ls", "vm1/"]] {
        let error = refused(&host, args);
        assert!(error.contains("no no no "), "{error}");
    }
    // The daemon stores only a part of the answer, too.
    assert!(refused(&host, &["set", "vm1", "user.a=b"]).len() < 10_000);
    assert!(host.run(&["agent-state", "vm1"]).len() < 10_000);
}

fn frame_head(opcode: u8, length: u64) -> Vec<u8> {
    [&[0x80 | opcode, 127][..], &length.to_be_bytes()].concat()
}

#[test]
fn limits_the_length_of_events_and_frames() {
    for (opcode, length, told) in [
        // A long frame, or a message of many frames.
        (1, 15u64 << 20, "longer than 4 MiB"),
        (0, 1 << 20, "longer than 4 MiB"),
    ] {
        let host = with_agent(move |request, stream| {
            accept_websocket(stream, request)?;
            if opcode == 0 {
                stream.write_all(&[1, 1, b'x'])?;
            }
            loop {
                let mut head = frame_head(opcode, length);
                head[0] &= if opcode == 0 { 0x7f } else { 0xff };
                stream.write_all(&head)?;
                stream.write_all(&vec![b'x'; usize::try_from(length).unwrap()])?;
                stream.flush()?;
            }
        });
        let error = refused(&host, &["events", "vm1"]);
        assert!(error.contains(told), "{error}");
    }
}

#[test]
fn gives_up_a_websocket_whose_handshake_is_slow() {
    let host = world(|stream| drip(stream, "101 Switching Protocols"));
    let error = refused(&host, &["events", "vm1"]);
    assert!(error.contains("took too long"), "{error}");
}

#[test]
fn gives_up_endless_output_after_its_command_ended() {
    let host = with_agent(|request, stream| open_command(request, stream, &operation(Some(0))));
    let output = host.run_within(8 * MEMORY, &["exec", "-T", "-n", "vm1", "--", "true"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{error}");
    assert!(error.contains("holds its output open: gave up"), "{error}");
}

#[test]
fn limits_a_guests_requests() {
    let host = Host::started("lxd", &[]);
    let guest = Guest::of(&host);
    assert!(guest.try_ask("PATCH", "/1.0", &"x".repeat(10 << 20)).is_err());
    wait("the reason", SOON, || host.log().contains("body is longer than 256 KiB").then_some(()));
    assert_eq!(guest.get("/1.0").0, 200);
}
