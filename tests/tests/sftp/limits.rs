//! Sessions that the guest's policy limits to reading or to some directories.

use mote_tests::prelude::*;
use mote_tests::sftp::{Int, Long, Reply, Session, Text, bytes, kind, open};

use super::{FAILURE, session};

pub(crate) const DENIED: Reply = Reply::Status(3);
pub(crate) const NO_SUCH_FILE: Reply = Reply::Status(2);
pub(crate) const NOBODY: u32 = 65_534;

pub(crate) fn limited(scratch: &Scratch, arguments: &[&Path]) -> Session {
    let root = scratch.0.join("root");
    fs::create_dir_all(root.join("run/mote")).unwrap();
    let mut command = Command::new(agent());
    command.arg("--root").arg(root).arg("sftp-server").args(arguments);
    let mut session = Session::with(command.current_dir(&scratch.0));
    session.hello();
    session
}

#[test]
fn a_session_for_reading_changes_nothing() {
    let scratch = Scratch::new();
    for name in ["a", "b"] {
        fs::write(scratch.0.join(name), name).unwrap();
    }
    fs::create_dir(scratch.0.join("d")).unwrap();
    let mut session = limited(&scratch, &["-R".as_ref()]);
    let before = fs::metadata(scratch.0.join("a")).unwrap();
    let handle = session.open(b"a", open::READ);
    let extended = |name: &'static str| Text(name.as_bytes());
    for (what, fields) in [
        (kind::OPEN, &[Text(b"a"), Int(open::WRITE), Int(0)][..]),
        (kind::OPEN, &[Text(b"new"), Int(open::READ | open::CREATE), Int(0)]),
        (kind::OPEN, &[Text(b"new"), Int(open::CREATE), Int(0)]),
        (kind::OPEN, &[Text(b"a"), Int(open::READ | open::TRUNCATE), Int(0)]),
        (kind::OPEN, &[Text(b"a"), Int(open::APPEND), Int(0)]),
        (kind::WRITE, &[Text(&handle), Int(0), Int(0), Text(b"x")]),
        (kind::SETSTAT, &[Text(b"a"), Int(4), Int(0o777)]),
        (kind::FSETSTAT, &[Text(&handle), Int(4), Int(0o777)]),
        (kind::REMOVE, &[Text(b"a")]),
        (kind::MKDIR, &[Text(b"e"), Int(0)]),
        (kind::RMDIR, &[Text(b"d")]),
        (kind::RENAME, &[Text(b"a"), Text(b"c")]),
        (kind::SYMLINK, &[Text(b"a"), Text(b"c")]),
        (kind::EXTENDED, &[extended("posix-rename@openssh.com"), Text(b"a"), Text(b"c")]),
        (kind::EXTENDED, &[extended("hardlink@openssh.com"), Text(b"a"), Text(b"c")]),
        (kind::EXTENDED, &[extended("lsetstat@openssh.com"), Text(b"a"), Int(4), Int(0o777)]),
    ] {
        assert_eq!(session.ask(what, fields), DENIED, "{what} {fields:?}");
    }
    let read = session.ask(kind::READ, &[Text(&handle), Int(0), Int(0), Int(9)]);
    assert_eq!(read, Reply::Data(b"a".into()));
    session.done(kind::CLOSE, &[Text(&handle)]);
    assert_eq!(session.list(b".").len(), 4);
    let after = fs::metadata(scratch.0.join("a")).unwrap();
    assert_eq!((after.mode(), after.nlink(), after.len()), (before.mode(), 1, 1));
}

fn tree() -> Scratch {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.0.join("shown/sub")).unwrap();
    fs::write(scratch.0.join("shown/file"), "shown").unwrap();
    fs::write(scratch.0.join("hidden"), "hidden").unwrap();
    scratch
}

#[test]
fn no_path_leads_out_of_the_shown_directories() {
    let true = by_root() else { return };
    let scratch = tree();
    let (shown, hidden) = (scratch.0.join("shown"), scratch.0.join("hidden"));
    symlink(&hidden, shown.join("absolute")).unwrap();
    symlink("../hidden", shown.join("relative")).unwrap();
    symlink("..", shown.join("up")).unwrap();
    symlink("/proc/self/root", shown.join("magic")).unwrap();
    symlink(shown.join("file"), shown.join("within")).unwrap();
    let mut session = limited(&scratch, &["-b".as_ref(), &shown]);
    let path = |name: &str| shown.join(name).as_os_str().as_bytes().to_owned();
    // Paths in the session are the same as outside.
    assert_eq!(session.path(kind::REALPATH, b"."), b"/");
    assert_eq!(session.stat(kind::STAT, &path("file")).size, Some(5));
    assert_eq!(session.stat(kind::STAT, &path("within")).size, Some(5));
    let hidden_name = hidden.as_os_str().as_bytes();
    for name in
        [hidden_name, &path("absolute"), &path("relative"), &path("up/hidden"), b"/etc/passwd"]
    {
        for request in [
            (kind::STAT, &[Text(name)][..]),
            (kind::OPEN, &[Text(name), Int(open::READ), Int(0)]),
            // Landlock would not deny these requests.
            (kind::SETSTAT, &[Text(name), Int(4), Int(0o4777)]),
            (kind::SETSTAT, &[Text(name), Int(2), Int(1), Int(1)]),
            (kind::SETSTAT, &[Text(name), Int(8), Int(1), Int(1)]),
        ] {
            let shown = String::from_utf8_lossy(name).into_owned();
            assert_eq!(session.ask(request.0, request.1), NO_SUCH_FILE, "{shown} {}", request.0);
        }
    }
    for name in ["magic/etc/passwd", "../../../../../../../../etc/passwd"] {
        assert_eq!(session.ask(kind::STAT, &[Text(&path(name))]), NO_SUCH_FILE, "{name}");
    }
    // Nothing else is visible, and nothing can be created or moved elsewhere.
    let names: Vec<_> = session.list(b"/").into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names.len(), 1);
    assert_ne!(session.ask(kind::MKDIR, &[Text(b"/new"), Int(0)]), Reply::Status(0));
    let out = session.ask(kind::RENAME, &[Text(&path("file")), Text(hidden_name)]);
    assert_ne!(out, Reply::Status(0));
    session.done(kind::MKDIR, &[Text(&path("made")), Int(0)]);
    assert!(shown.join("made").is_dir());
    assert_eq!(fs::read_to_string(&hidden).unwrap(), "hidden");
    assert_eq!(fs::metadata(&hidden).unwrap().permissions().mode() & 0o7777, 0o644);
    // An open directory that is moved away gives no access to the outside.
    fs::rename(shown.join("sub"), scratch.0.join("moved")).unwrap();
    assert_eq!(session.ask(kind::STAT, &[Text(&path("sub/../../hidden"))]), NO_SUCH_FILE);
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains("root/run/mote"), "{mounts}");
}

#[test]
fn rejects_directories_that_cannot_be_limited() {
    let scratch = tree();
    let shown = scratch.0.join("shown");
    let link = scratch.0.join("link");
    symlink(&shown, &link).unwrap();
    chown(&shown, Some(NOBODY), None).ok();
    symlink("/etc", shown.join("users")).unwrap();
    std::os::unix::fs::lchown(shown.join("users"), Some(NOBODY), None).ok();
    // A missing path, and a link that its user can change.
    for bad in ["none", "shown/users"] {
        let mut session =
            limited(&scratch, &["-b".as_ref(), &shown, "-b".as_ref(), &scratch.0.join(bad)]);
        for request in [
            (kind::STAT, &[Text(b"/etc/passwd")][..]),
            (kind::OPENDIR, &[Text(b"/")]),
            (kind::REALPATH, &[Text(b".")]),
            (kind::OPEN, &[Text(b"/etc/passwd"), Int(open::READ), Int(0)]),
        ] {
            assert_eq!(session.ask(request.0, request.1), DENIED, "{bad} {}", request.0);
        }
    }
    if is_root() {
        let mut session = limited(&scratch, &["-b".as_ref(), "".as_ref()]);
        assert!(session.list(b"/").is_empty());
    }
}

fn end(mut session: Session) -> Option<i32> {
    session.server.ends(Duration::from_secs(5))
}

#[test]
fn does_not_open_irregular_files() {
    let (scratch, mut session) = session();
    let fifo = scratch.0.join("fifo");
    mote_tests::fifo(&fifo);
    let _socket = UnixListener::bind(scratch.0.join("sock")).unwrap();
    // The paths include the server's own input and output, which must stay open.
    let own = ["/proc/self/fd/0", "/proc/thread-self/fd/1", "/dev/stdin"].map(str::as_bytes);
    for path in [bytes(&fifo), b"sock", b"/dev/null", b"/dev/tty"].into_iter().chain(own) {
        for flags in [open::READ, open::WRITE, open::READ | open::WRITE | open::CREATE] {
            let reply = session.ask(kind::OPEN, &[Text(path), Int(flags), Int(0)]);
            assert!(matches!(reply, Reply::Status(code) if code != 0), "{path:?}: {reply:?}");
        }
    }
    assert_eq!(session.ask(kind::SETSTAT, &[Text(b"fifo"), Int(1), Long(0)]), FAILURE);
    assert!(matches!(session.ask(kind::OPENDIR, &[Text(b"fifo")]), Reply::Status(_)));
    assert_eq!(session.stat(kind::STAT, b"fifo").mode.unwrap() & 0o170_000, 0o010_000);
    // Regular files that belong to the server itself: each request must get an answer.
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
    // A client may send many requests without waiting for replies.
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
    // Fills the buffers of both directions.
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
