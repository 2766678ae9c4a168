//! Attacks on the SFTP server by a client, or by files of the guest.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use mote_tests::sftp::{Int, Long, Reply, Session, Text, bytes, kind, open};

use super::{FAILURE, session};

fn end(mut session: Session) -> Option<i32> {
    session.server.ends(Duration::from_secs(5))
}

#[test]
fn does_not_open_irregular_files() {
    let (scratch, mut session) = session();
    let fifo = scratch.0.join("fifo");
    mote_tests::fifo(&fifo);
    let _socket = std::os::unix::net::UnixListener::bind(scratch.0.join("sock")).unwrap();
    // The server's own input and output are among them; they must stay open.
    let own = ["/proc/self/fd/0", "/proc/thread-self/fd/1", "/dev/stdin"].map(str::as_bytes);
    for path in [bytes(&fifo), b"sock", b"/dev/null", b"/dev/tty"].into_iter().chain(own) {
        for flags in [open::READ, open::WRITE, open::READ | open::WRITE | open::CREATE] {
            let reply = session.ask(kind::OPEN, &[Text(path), Int(flags), Int(0)]);
            assert!(matches!(reply, Reply::Status(code) if code != 0), "{path:?}: {reply:?}");
        }
    }
    assert_eq!(session.ask(kind::SETSTAT, &[Text(b"fifo"), Int(1), Long(0)]), FAILURE);
    let opened = session.ask(kind::OPENDIR, &[Text(b"fifo")]);
    assert!(matches!(opened, Reply::Status(_)));
    assert_eq!(session.stat(kind::STAT, b"fifo").mode.unwrap() & 0o170_000, 0o010_000);
    // Regular files that are the server itself: each request gets an answer.
    for path in [&b"/proc/self/mem"[..], b"/proc/self/root/proc/self/exe"] {
        if let Reply::Handle(handle) =
            session.ask(kind::OPEN, &[Text(path), Int(open::READ), Int(0)])
        {
            session.ask(kind::READ, &[Text(&handle), Long(0), Int(16)]);
            session.done(kind::CLOSE, &[Text(&handle)]);
        }
    }
    assert_eq!(session.ask(kind::SETSTAT, &[Text(own[0]), Int(1), Long(0)]), FAILURE);
}

#[test]
fn an_invalid_length_ends_the_session() {
    for lost in [
        &b"\0\0\0\0"[..],
        b"\xff\xff\xff\xff\x01",
        b"\0\x04\x10\x01\x06",   // one more than the longest
        b"\0\0\0\x04\x03\0\0\0", // no whole id
    ] {
        let (_scratch, mut session) = session();
        let good = session.send(kind::STAT, &[Text(b".")]);
        session.socket.write_all(lost).unwrap();
        let (id, reply) = session.receive();
        assert_eq!(id, good);
        assert!(matches!(reply, Reply::Attrs(_)), "what came before is answered: {reply:?}");
        let mut rest = Vec::new();
        let _cut = session.socket.read_to_end(&mut rest);
        assert_eq!((rest, end(session)), (vec![], Some(1)), "{lost:?}");
    }
}

#[test]
fn the_end_of_input_exits_without_error() {
    for begun in [&b""[..], b"\0\0", b"\0\0\0\x09\x11\0\0"] {
        let (_scratch, mut session) = session();
        session.socket.write_all(begun).unwrap();
        session.socket.shutdown(Shutdown::Write).unwrap();
        assert_eq!(end(session), Some(0), "after {begun:?}");
    }
    // A client may send without waiting for replies.
    let (_scratch, mut session) = session();
    for _ in 0..100 {
        session.send(kind::READDIR, &[Text(b"none")]);
    }
    session.socket.shutdown(Shutdown::Both).unwrap();
    assert_eq!(end(session), Some(0));
}

#[test]
fn memory_stays_constant_for_any_request() {
    let (scratch, mut session) = session();
    for file in 0..3000 {
        fs::write(scratch.0.join(format!("file-{file}")), "").unwrap();
    }
    let handle = session.open(b"big", open::READ | open::WRITE | open::CREATE);
    let block = vec![7; 255 * 1024];
    // Fills both buffers.
    session.done(kind::WRITE, &[Text(&handle), Long(0), Text(&block)]);
    session.ask(kind::READ, &[Text(&handle), Long(0), Int(u32::MAX)]);
    session.list(b".");
    let before = session.memory("VmHWM");
    for round in 0..200 {
        session.send(kind::WRITE, &[Text(&handle), Long(round << 18), Text(&block)]);
        session.send(kind::READ, &[Text(&handle), Long(0), Int(u32::MAX)]);
        session.send(kind::REALPATH, &[Text(b"big")]);
        for _ in 0..3 {
            session.receive();
        }
    }
    for _ in 0..5 {
        assert_eq!(session.list(b".").len(), 3001);
    }
    for _ in 0..20 {
        for _ in 0..500 {
            session.send(kind::STAT, &[Text(b"big")]);
        }
        for _ in 0..500 {
            session.receive();
        }
    }
    let after = session.memory("VmHWM");
    println!("SFTP: {before} kB at its peak, after more work {after} kB");
    assert!(after <= before + 64, "{before} kB grew to {after} kB");
    assert!(after < 2048, "{after} kB");
}
