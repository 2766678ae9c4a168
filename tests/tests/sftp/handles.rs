//! Open handles: their limit, and directories that are opened like files.

use std::fs;
use std::process::Command;

use mote_tests::sftp::{Int, Long, Reply, Session, Text, kind, open};
use mote_tests::{Scratch, agent};

use super::{FAILURE, session};

fn limited(soft: usize, hard: usize) -> (Scratch, Session) {
    let scratch = Scratch::new();
    let script = format!("ulimit -Sn {soft}; ulimit -Hn {hard}; exec \"$0\" sftp-server -d \"$1\"");
    let mut command = Command::new("sh");
    let mut session = Session::with(command.args(["-c", &script]).arg(agent()).arg(&scratch.0));
    session.hello();
    (scratch, session)
}

/// Returns the limit of handles that `limits@openssh.com` reports.
fn told(session: &mut Session) -> usize {
    let limits = session.ask(kind::EXTENDED, &[Text(b"limits@openssh.com")]);
    let Reply::Numbers(limits) = limits else { panic!("{limits:?}") };
    assert_eq!(limits[..3], [260 * 1024, 255 * 1024, 255 * 1024]);
    usize::try_from(limits[3]).unwrap()
}

#[test]
fn fails_a_request_at_the_limit_and_continues() {
    for hard in [40, 200] {
        let (scratch, mut session) = limited(20, hard);
        fs::write(scratch.0.join("f"), "0123456789").unwrap();
        let most = told(&mut session);
        assert!((hard - 10..hard).contains(&most), "{most} of {hard}");
        let mut handles: Vec<_> = (0..most).map(|_| session.open(b"f", open::READ)).collect();
        let create = open::WRITE | open::CREATE;
        assert_eq!(session.ask(kind::OPEN, &[Text(b"new"), Int(create), Int(0)]), FAILURE);
        assert!(!scratch.0.join("new").exists(), "made although there was no handle for it");
        assert_eq!(session.ask(kind::OPENDIR, &[Text(b".")]), FAILURE);
        // Requests that open a file only temporarily still work.
        session.done(kind::SETSTAT, &[Text(b"f"), Int(1), Long(3)]);
        for handle in &handles {
            let read = session.ask(kind::READ, &[Text(handle), Long(0), Int(100)]);
            assert_eq!(read, Reply::Data(b"012".to_vec()));
        }
        for _ in 0..1000 {
            session.done(kind::CLOSE, &[Text(&handles.swap_remove(7))]);
            handles.push(session.open(b"f", open::READ));
        }
        session.send(kind::OPEN, &[Text(b"f"), Int(open::READ), Int(0)]);
        let text = String::from_utf8_lossy(&session.receive_raw()).into_owned();
        assert!(text.contains("os error 24") || text.contains("descriptors"), "{text}");
    }
}

#[test]
fn opens_a_directory_as_a_file_but_does_not_read_it() {
    let (scratch, mut session) = session();
    fs::create_dir(scratch.0.join("d")).unwrap();
    std::os::unix::fs::symlink("d", scratch.0.join("link")).unwrap();
    for path in [&b"d"[..], b"link", b"."] {
        let handle = session.open(path, open::READ);
        let reply = session.ask(kind::FSTAT, &[Text(&handle)]);
        let Reply::Attrs(attrs) = reply else { panic!("{reply:?}") };
        assert_eq!(attrs.mode.unwrap() & 0o170_000, 0o040_000);
        session.send(kind::READ, &[Text(&handle), Long(0), Int(100)]);
        let packet = session.receive_raw();
        let text = String::from_utf8_lossy(&packet).to_lowercase();
        assert!(packet.starts_with(&[101]) && text.contains("is a directory"), "{text}");
        assert_eq!(packet[5..9], [0, 0, 0, 4]);
        assert_eq!(session.ask(kind::WRITE, &[Text(&handle), Long(0), Text(b"x")]), FAILURE);
        assert_eq!(session.ask(kind::READDIR, &[Text(&handle)]), FAILURE);
        session.done(kind::CLOSE, &[Text(&handle)]);
    }
    for flags in [
        open::WRITE,
        open::READ | open::WRITE,
        open::READ | open::CREATE,
        open::READ | open::TRUNCATE,
        open::WRITE | open::CREATE | open::TRUNCATE,
    ] {
        let reply = session.ask(kind::OPEN, &[Text(b"d"), Int(flags), Int(0)]);
        assert_eq!(reply, FAILURE, "{flags}");
    }
    assert_eq!(session.ask(kind::SETSTAT, &[Text(b"d"), Int(1), Long(0)]), FAILURE);
}
