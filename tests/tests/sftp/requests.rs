//! Edge cases of each request.

use mote_tests::prelude::*;
use mote_tests::sftp::{Int, Long, Reply, Session, Text, bytes, kind, open};

use super::{FAILURE, UNSUPPORTED, session};

const NO_SUCH_FILE: Reply = Reply::Status(2);
const EOF: Reply = Reply::Status(1);

#[test]
fn rename_replaces_files_and_posix_rename_empty_directories_too() {
    let (scratch, mut session) = session();
    for name in ["a", "b", "c"] {
        fs::write(scratch.0.join(name), name).unwrap();
    }
    for name in ["d", "e", "e/full"] {
        fs::create_dir(scratch.0.join(name)).unwrap();
    }
    symlink("nowhere", scratch.0.join("dangling")).unwrap();
    session.done(kind::RENAME, &[Text(b"a"), Text(b"b")]);
    session.done(kind::RENAME, &[Text(b"b"), Text(b"dangling")]);
    assert_eq!(fs::read(scratch.0.join("dangling")).unwrap(), b"a");
    assert!(!scratch.0.join("nowhere").exists());
    assert_eq!(session.ask(kind::RENAME, &[Text(b"none"), Text(b"c")]), NO_SUCH_FILE);
    // As in Go's server, a rename never replaces a directory, even an empty one or the renamed one.
    for (from, to) in [(&b"c"[..], &b"d"[..]), (b"e", b"d"), (b"d", b"e"), (b"d", b"d")] {
        assert_eq!(session.ask(kind::RENAME, &[Text(from), Text(to)]), FAILURE, "{from:?}");
    }
    assert_eq!(session.ask(kind::RENAME, &[Text(b"none"), Text(b"d")]), NO_SUCH_FILE);
    assert_eq!(session.ask(kind::RENAME, &[Text(b"d"), Text(b"c")]), NO_SUCH_FILE); // ENOTDIR
    assert_eq!(fs::read(scratch.0.join("c")).unwrap(), b"c");
    let posix = |from, to| [Text(b"posix-rename@openssh.com"), Text(from), Text(to)];
    session.done(kind::EXTENDED, &posix(b"c", b"dangling"));
    assert_eq!(fs::read(scratch.0.join("dangling")).unwrap(), b"c");
    session.done(kind::EXTENDED, &posix(b"e", b"d"));
    assert!(scratch.0.join("d/full").exists());
    assert_eq!(session.ask(kind::EXTENDED, &posix(b"c", b"dangling")), NO_SUCH_FILE);
}

#[test]
fn realpath_resolves_existing_components_and_keeps_the_rest() {
    let (scratch, mut session) = session();
    fs::create_dir_all(scratch.0.join("d/e")).unwrap();
    symlink("d/e", scratch.0.join("link")).unwrap();
    fs::write(scratch.0.join("file"), "").unwrap();
    let root = fs::canonicalize(&scratch.0).unwrap();
    let below = |path: &str| bytes(&root.join(path)).to_vec();
    for path in [&b""[..], b".", b"./", b"d/..", b"link/../.."] {
        assert_eq!(session.path(kind::REALPATH, path), bytes(&root), "{path:?}");
    }
    for (path, real) in [
        (&b"link"[..], "d/e"),
        (b"link/..", "d"),
        (b"d//./e/", "d/e"),
        (b"new", "new"),
        (b"link/new", "d/e/new"),
        (b"d/new/newer", "d/new/newer"),
    ] {
        assert_eq!(session.path(kind::REALPATH, path), below(real), "{path:?}");
    }
    assert_eq!(session.path(kind::REALPATH, b"/"), b"/");
    assert_eq!(session.path(kind::REALPATH, b"/../.."), b"/");
    assert_eq!(session.path(kind::REALPATH, b"/no-such-name"), b"/no-such-name");
    for path in [&b"new/.."[..], b"new/../x", b"file/x"] {
        assert_eq!(session.ask(kind::REALPATH, &[Text(path)]), NO_SUCH_FILE, "{path:?}");
    }
}

#[test]
fn writes_sparse_files_beyond_4_gib() {
    let (scratch, mut session) = session();
    let handle = session.open(b"f", open::READ | open::WRITE | open::CREATE);
    let far = 5 << 30;
    session.done(kind::WRITE, &[Text(&handle), Long(far), Text(b"far away")]);
    let read = |offset, length| [Text(&handle), Long(offset), Int(length)];
    assert_eq!(session.ask(kind::READ, &read(far, 100)), Reply::Data(b"far away".to_vec()));
    assert_eq!(session.ask(kind::READ, &read(far - 2, 3)), Reply::Data(b"\0\0f".to_vec()));
    assert_eq!(session.ask(kind::READ, &read(far + 8, 100)), EOF);
    assert_eq!(session.ask(kind::READ, &read(u64::MAX, 1)), FAILURE);
    assert_eq!(session.ask(kind::WRITE, &[Text(&handle), Long(1 << 63), Text(b"x")]), FAILURE);
    let Reply::Attrs(attrs) = session.ask(kind::FSTAT, &[Text(&handle)]) else { panic!() };
    assert_eq!(attrs.size, Some(far + 8));
    assert!(fs::metadata(scratch.0.join("f")).unwrap().blocks() < 1000);
    let of_disk = session.ask(kind::EXTENDED, &[Text(b"fstatvfs@openssh.com"), Text(&handle)]);
    assert!(matches!(of_disk, Reply::Numbers(numbers) if numbers.len() == 11));
    // The file has enough data, but a reply never exceeds the reported limit.
    let Reply::Data(data) = session.ask(kind::READ, &read(0, u32::MAX)) else { panic!() };
    assert_eq!(data.len(), 255 * 1024);
}

#[test]
fn new_files_have_the_requested_mode_despite_the_umask() {
    let scratch = Scratch::new();
    let mut command = Command::new("sh");
    command.args(["-c", "umask 077; exec \"$0\" sftp-server -d \"$1\""]);
    let mut session = Session::with(command.arg(agent()).arg(&scratch.0));
    session.hello();
    let flags = open::WRITE | open::CREATE;
    session.open(b"default", flags);
    for (name, mode) in [(&b"private"[..], 0o600), (b"run", 0o755), (b"all", 0o666)] {
        session.ask(kind::OPEN, &[Text(name), Int(flags), Int(4), Int(mode)]);
    }
    session.done(kind::MKDIR, &[Text(b"dir"), Int(0)]);
    session.done(kind::MKDIR, &[Text(b"private-dir"), Int(4), Int(0o40_700)]);
    for (name, mode) in [
        ("default", 0o644),
        ("private", 0o600),
        ("run", 0o755),
        ("all", 0o644), // files that everyone can write are never intended
        ("dir", 0o755),
        ("private-dir", 0o700),
    ] {
        let is = fs::metadata(scratch.0.join(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!(is, mode, "{name}: {is:o}");
    }
}

/// The conformance suite covers SETSTAT and FSETSTAT with each attribute.
#[test]
fn setstat_keeps_the_owner_minus_one_and_lsetstat_the_target() {
    let (scratch, mut session) = session();
    fs::write(scratch.0.join("f"), "12345").unwrap();
    symlink("f", scratch.0.join("l")).unwrap();
    session.done(kind::SETSTAT, &[Text(b"l"), Int(2), Int(12), Int(34)]);
    session.done(kind::SETSTAT, &[Text(b"f"), Int(2), Int(u32::MAX), Int(35)]);
    let lsetstat = Text(b"lsetstat@openssh.com");
    session.done(kind::EXTENDED, &[lsetstat, Text(b"l"), Int(10), Int(9), Int(9), Int(1), Int(2)]);
    let link = fs::symlink_metadata(scratch.0.join("l")).unwrap();
    assert_eq!((link.uid(), link.gid(), link.mtime()), (9, 9, 2));
    let file = fs::metadata(scratch.0.join("f")).unwrap();
    assert_eq!((file.uid(), file.gid()), (12, 35));
    let mode = [lsetstat, Text(b"l"), Int(4), Int(0o600)];
    assert_eq!(session.ask(kind::EXTENDED, &mode), UNSUPPORTED);
}

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
        assert!(!scratch.0.join("new").exists(), "created without a free handle");
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
    symlink("d", scratch.0.join("link")).unwrap();
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
        assert_eq!(session.ask(kind::OPEN, &[Text(b"d"), Int(flags), Int(0)]), FAILURE, "{flags}");
    }
    assert_eq!(session.ask(kind::SETSTAT, &[Text(b"d"), Int(1), Long(0)]), FAILURE);
}

fn logged(scratch: &Scratch, arguments: &[&Path]) -> Session {
    let root = scratch.0.join("root");
    fs::create_dir_all(root.join("run/mote")).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$@\" 2>>log", "-"]).arg(agent()).arg("--root").arg(root);
    let mut session =
        Session::with(command.arg("sftp-server").args(arguments).current_dir(&scratch.0));
    session.hello();
    session
}

fn lines(scratch: &Scratch, part: &str) -> usize {
    let log = fs::read_to_string(scratch.0.join("log")).unwrap_or_default();
    assert!(!log.contains("too many") && !log.contains("lost"), "{log}");
    log.lines().filter(|line| line.contains("info: audit: sftp ") && line.contains(part)).count()
}

#[test]
fn logs_each_change_and_limits_the_rate() {
    let scratch = Scratch::new();
    let mut session = logged(&scratch, &[]);
    let begun = Instant::now();
    for number in 0..5_400 {
        session.done(kind::MKDIR, &[Text(format!("d{number}").as_bytes()), Int(0)]);
    }
    let took = begun.elapsed();
    until("a line for each", Duration::from_secs(5), || lines(&scratch, " mkdir \"d") == 5_400);
    // The limit is a burst of 5,000 lines, then 200 per second.
    assert!(took >= Duration::from_millis(1_900), "{took:?}");
}

#[test]
fn names_a_changed_open_file_without_proc() {
    let limits: &[&[&Path]] = if is_root() { &[&[], &["-b".as_ref()]] } else { &[&[]] };
    for limit in limits {
        let scratch = Scratch::new();
        let shown = scratch.0.join("shown");
        fs::create_dir(&shown).unwrap();
        let path = shown.join("a \" b\nc");
        fs::write(&path, "").unwrap();
        let with = [limit, &[&*shown][..]].concat();
        let mut session = logged(&scratch, if limit.is_empty() { limit } else { &with });
        let handle = session.open(path.as_os_str().as_bytes(), open::READ);
        session.done(kind::FSETSTAT, &[Text(&handle), Int(4), Int(0o600)]);
        let quoted = format!(" setstat \"{}/a \\\" b\\nc\"", shown.display());
        until("its line", Duration::from_secs(5), || lines(&scratch, &quoted) == 1);
    }
}
