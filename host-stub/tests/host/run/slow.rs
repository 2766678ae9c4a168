//! An agent that has announced itself on a busy machine. The host repeats only requests that are
//! safe to repeat.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mote_client::Message;

use super::World;
use crate::peers::agent::{self, Preamble, Stream, greet, hold_websocket, open_command, operation};
use crate::peers::host::{Host, SOON, errors, wait};
use crate::peers::qmp::Qemu;
use crate::peers::sftp::{self, Said};

/// How the agent handles its nth call, not counting calls to `/1.0`.
type Answer = fn(usize, &Message, &mut Stream) -> std::io::Result<()>;

/// Starts an agent and returns the first words of its calls.
fn agent(socket: &Path, share: &Path, answer: Answer) -> Arc<Mutex<Vec<String>>> {
    let calls = Arc::<Mutex<Vec<String>>>::default();
    let all = calls.clone();
    agent::start(socket, share, Preamble::Connect, move |request, mut stream| {
        let line = format!("{} {}", request.method, request.target);
        if request.target == "/1.0" {
            return greet(&mut stream, "lxd-agent");
        }
        let mut calls = calls.lock().unwrap();
        calls.push(line);
        let count = calls.len();
        drop(calls);
        answer(count, request, &mut stream)
    });
    all
}

fn say(stream: &mut Stream, status: &str, body: &str) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len())?;
    // The body need not arrive with the head.
    std::thread::sleep(Duration::from_millis(50));
    stream.write_all(body.as_bytes())?;
    stream.conn.send_close_notify();
    stream.flush()
}

fn run(name: &str, options: &[&str], answer: Answer) -> (String, Vec<String>) {
    run_in(&World::new(name, "exec sleep 1000"), options, answer)
}

/// Runs a command that must fail. Returns the messages and the calls.
fn run_in(world: &World, options: &[&str], answer: Answer) -> (String, Vec<String>) {
    let run = mote_machine::bounded(&mut world.command(options)).unwrap();
    let instance = world.instance();
    let calls = agent(&instance.join("vsock"), &instance.join("config"), answer);
    let qemu = Qemu::start(&instance.join("qmp"));
    qemu.is_read();
    qemu.say("STARTED\n");
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{}", errors(&output));
    let calls = calls.lock().unwrap().clone();
    (errors(&output), calls)
}

#[test]
fn repeats_a_request_that_timed_out() {
    let (said, calls) = run("slow", &[], |count, _, stream| {
        match count {
            // Closes after the TLS handshake, during the websocket handshake.
            1 => drop(stream.read(&mut [0])),
            2 => {}
            _ => return say(stream, "403 Forbidden", r#"{"type":"error","error":"enough"}"#),
        }
        Ok(())
    });
    assert_eq!(calls, ["GET /1.0/events"; 3], "{said}");
    assert!(said.starts_with("mote-host: events: status 403: enough\n"), "{said}");
}

#[test]
fn does_not_repeat_a_command_that_may_have_started() {
    let (said, calls) = run("once", &[], |_, request, stream| {
        if request.target == "/1.0/events" {
            hold_websocket(stream, request)?;
        }
        // The connection is closed without an answer.
        Ok(())
    });
    assert_eq!(calls, ["GET /1.0/events", "POST /1.0/exec"], "{said}");
}

#[test]
fn does_not_follow_a_link_that_a_guest_puts_into_a_share() {
    // A guest can create this link on a share while it boots.
    let world = World::new("pushed", "cd \"${0%/*}\"; ln -sf secret conf; exec sleep 1000");
    let conf = world.path("conf");
    std::fs::write(&conf, "").unwrap();
    std::fs::write(world.path("secret"), "mine").unwrap();
    let push = format!("{conf}:/conf");
    let (said, _) = run_in(&world, &["--push", &push], |_, request, stream| {
        if request.target == "/1.0/events" {
            return hold_websocket(stream, request);
        }
        if request.target != "/1.0/sftp" {
            return say(stream, "403 Forbidden", r#"{"type":"error","error":"enough"}"#);
        }
        sftp::serve(request, stream, &|asked| match (asked.kind, asked.path.as_str()) {
            (sftp::OPEN, _) => Said::Refused(4),
            (sftp::LSTAT, "/conf") => Said::Refused(2),
            _ => sftp::of_tree(asked, |_| Said::Directory, &[]),
        })
    });
    assert!(Path::new(&conf).is_symlink() && said.contains("enough"), "{said}");
}

/// Runs with a guest whose list of mounts is endless or, with `TRICKLES`, slow.
fn with_mounts<const TRICKLES: bool>(name: &str, why: &str) {
    let share = format!("{}:/m:ro", std::env::temp_dir().display());
    let options = ["--boot-timeout", "5", "--share", &share];
    let (said, _) = run(name, &options, |_, request, stream| {
        if request.target == "/1.0/events" {
            return hold_websocket(stream, request);
        }
        sftp::serve(request, stream, &|asked| match asked.kind {
            sftp::READ if TRICKLES => Said::Trickle,
            sftp::READ => Said::Data(vec![b'x'; 32 * 1024]),
            _ => sftp::of_tree(asked, |_| Said::File, &[]),
        })
    });
    assert!(said.contains("/proc/mounts: ") && said.contains(why), "{said}");
}

#[test]
fn gives_up_an_endless_or_slow_list_of_mounts() {
    with_mounts::<false>("mounts", "failed to write whole buffer");
    // The error appears when the boot times out.
    with_mounts::<true>("trickle", "no longer answers");
}

/// The device's process continues, and so do its connections.
#[test]
fn a_command_ends_with_the_thread_of_the_vsock_device() {
    let (mut host, vsock, monitor) = Host::with_uds();
    let share = host.share("vm1");
    let calls =
        agent(&vsock, &share, |_, request, stream| open_command(request, stream, &operation(None)));
    let qemu = Qemu::start(&monitor);
    host.start();
    qemu.say("STARTED\n");
    host.wait_for("CONNECTED");
    assert_eq!(host.run(&["get", "vm1", "volatile.vsock_id"]), "7\n");
    assert!(host.path(&format!("vs_{}", host.port())).exists());
    let script = "echo vring_worker >/proc/$$/comm; read end; echo sh >/proc/$$/comm; read end";
    let vm =
        format!("guest-cid=3,uds-path={},socket={}", vsock.display(), host.path("vhost").display());
    let log = "thread 'vring_worker' panicked at x.rs:1:\nwhy\n0: main\n";
    std::fs::write(host.path("vhost.log"), log).unwrap();
    let mut device = std::process::Command::new("sh");
    device.arg0("vhost-device-vsock").args(["-c", script, "--vm", &vm]).stdin(Stdio::piped());
    let mut device = mote_machine::bounded(&mut device).unwrap();
    let mut exec = host.command(&["exec", "-T", "-n", "vm1", "--", "true"]);
    let exec = mote_machine::bounded(exec.stderr(Stdio::piped())).unwrap();
    let sockets =
        |calls: &[String]| calls.iter().filter(|call| call.contains("/websocket")).count();
    wait("the command's sockets", SOON, || (sockets(&calls.lock().unwrap()) == 4).then_some(()));
    device.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    let output = exec.wait_with_output().unwrap();
    device.kill().unwrap();
    device.wait().unwrap();
    let why = "vhost-device-vsock stopped serving: thread 'vring_worker' panicked at x.rs:1: why";
    let said = format!("mote-host: Disconnected: {why}\n");
    assert_eq!((output.status.code(), errors(&output)), (Some(129), said));
}
