//! Limited sessions: they create nothing that lets another user become root, and for users other
//! than root they do only what that user may do.

use mote_tests::prelude::*;
use mote_tests::sftp::{Int, Long, Reply, Session, Text, kind, open};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::limits::{DENIED, NO_SUCH_FILE, NOBODY, limited};
use crate::{FAILURE, UNSUPPORTED};

const MODE: u32 = 4;
const OWNER: u32 = 2;
const SIZE: u32 = 1;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn tree() -> (Scratch, PathBuf) {
    let scratch = Scratch::new();
    fs::set_permissions(&scratch.0, Permissions::from_mode(0o755)).unwrap();
    let shown = scratch.0.join("shown");
    fs::create_dir(&shown).unwrap();
    (scratch, shown)
}

fn set_id(path: &Path) {
    fs::write(path, "a program").unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o6755)).unwrap();
}

fn set_modes(session: &mut Session, directory: &Path) {
    let path = |name: &str| directory.join(name).as_os_str().as_bytes().to_owned();
    let lsetstat = Text(b"lsetstat@openssh.com");
    let flags = Int(open::READ | open::WRITE | open::CREATE);
    let opened = session.ask(kind::OPEN, &[Text(&path("a")), flags, Int(MODE), Int(0o10_6755)]);
    let Reply::Handle(handle) = opened else { panic!("{opened:?}") };
    assert_eq!(mode(&directory.join("a")), 0o755);
    session.done(kind::FSETSTAT, &[Text(&handle), Int(MODE), Int(0o4711)]);
    assert_eq!(mode(&directory.join("a")), 0o711);
    session.done(kind::SETSTAT, &[Text(&path("a")), Int(MODE), Int(0o2750)]);
    assert_eq!(mode(&directory.join("a")), 0o750);
    session.done(kind::EXTENDED, &[lsetstat, Text(&path("a")), Int(MODE), Int(0o7777)]);
    assert_eq!(mode(&directory.join("a")), 0o777);
    session.done(kind::MKDIR, &[Text(&path("d")), Int(MODE), Int(0o7755)]);
    assert_eq!(mode(&directory.join("d")), 0o755);
    // Extended attributes, such as file capabilities, cannot be set either.
    let capability = Text(b"security.capability");
    let bytes = Text(&[1, 0, 0, 2, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    session.done(kind::FSETSTAT, &[Text(&handle), Int(0x8000_0000), Int(1), capability, bytes]);
    assert_eq!(rustix::fs::listxattr(directory.join("a"), &mut [] as &mut [u8]).unwrap(), 0);
    session.done(kind::CLOSE, &[Text(&handle)]);
}

#[test]
fn an_unlimited_session_keeps_all_mode_bits() {
    let scratch = Scratch::new();
    let mut session = limited(&scratch, &[]);
    let path = |name: &str| scratch.0.join(name).as_os_str().as_bytes().to_owned();
    let flags = Int(open::WRITE | open::CREATE);
    let opened = session.ask(kind::OPEN, &[Text(&path("a")), flags, Int(MODE), Int(0o4755)]);
    assert!(matches!(opened, Reply::Handle(_)), "{opened:?}");
    assert_eq!(mode(&scratch.0.join("a")), 0o4755);
    session.done(kind::MKDIR, &[Text(&path("d")), Int(0)]);
    for bits in [0o1777, 0o2775, 0o4755] {
        session.done(kind::SETSTAT, &[Text(&path("d")), Int(MODE), Int(bits)]);
        assert_eq!(mode(&scratch.0.join("d")), bits);
    }
}

#[test]
fn a_limited_session_sets_only_ordinary_mode_bits() {
    let true = by_root() else { return };
    let (scratch, shown) = tree();
    let mut session = limited(&scratch, &["-b".as_ref(), &shown]);
    set_modes(&mut session, &shown);
    // A change through any name of root's file removes its set-user-id bit.
    for name in ["written", "emptied", "cut", "linked"] {
        set_id(&shown.join(name));
    }
    let path = |name: &str| shown.join(name).as_os_str().as_bytes().to_owned();
    let handle = session.open(&path("written"), open::WRITE);
    session.done(kind::WRITE, &[Text(&handle), Long(0), Text(b"mine")]);
    session.open(&path("emptied"), open::WRITE | open::TRUNCATE);
    session.done(kind::SETSTAT, &[Text(&path("cut")), Int(SIZE), Long(3)]);
    let hardlink = Text(b"hardlink@openssh.com");
    session.done(kind::EXTENDED, &[hardlink, Text(&path("linked")), Text(&path("link"))]);
    let handle = session.open(&path("link"), open::WRITE);
    session.done(kind::WRITE, &[Text(&handle), Long(0), Text(b"mine")]);
    for name in ["written", "emptied", "cut", "linked"] {
        assert_eq!(mode(&shown.join(name)) & 0o6000, 0, "{name}");
    }
    session.done(kind::SETSTAT, &[Text(&path("link")), Int(OWNER), Int(5), Int(6)]);
    let about = fs::metadata(shown.join("linked")).unwrap();
    assert_eq!((about.uid(), about.gid(), about.len()), (5, 6, 9));
}

#[test]
fn irregular_files_keep_mode_and_owner() {
    let true = by_root() else { return };
    let (scratch, shown) = tree();
    let mut session = limited(&scratch, &["-b".as_ref(), &shown]);
    let device = rustix::fs::makedev(1, 3);
    let (character, fifo) = (FileType::CharacterDevice, FileType::Fifo);
    mknodat(CWD, shown.join("device"), character, Mode::RUSR, device).unwrap();
    mknodat(CWD, shown.join("fifo"), fifo, Mode::RUSR, 0).unwrap();
    let _socket = UnixListener::bind(shown.join("socket")).unwrap();
    fs::set_permissions(shown.join("socket"), Permissions::from_mode(0o400)).unwrap();
    symlink("device", shown.join("symlink")).unwrap();
    for name in ["device", "fifo", "socket", "symlink"] {
        let path = shown.join(name);
        let path = path.as_os_str().as_bytes();
        let lsetstat = Text(b"lsetstat@openssh.com");
        for fields in [&[Int(MODE), Int(0o666)][..], &[Int(OWNER), Int(NOBODY), Int(NOBODY)]] {
            let reply = session.ask(kind::SETSTAT, &[&[Text(path)], fields].concat());
            assert_eq!(reply, FAILURE, "{name} {fields:?}");
            let reply = session.ask(kind::EXTENDED, &[&[lsetstat, Text(path)], fields].concat());
            assert!(reply == FAILURE || reply == UNSUPPORTED, "{name} {fields:?} {reply:?}");
        }
    }
    for name in ["device", "fifo", "socket"] {
        let about = fs::metadata(shown.join(name)).unwrap();
        assert_eq!((mode(&shown.join(name)), about.uid()), (0o400, 0), "{name}");
    }
}

#[test]
fn does_not_open_a_device_that_replaces_a_file() {
    let true = by_root() else { return };
    let (scratch, shown) = tree();
    let mut session = limited(&scratch, &["-b".as_ref(), &shown]);
    let (full, plain) = (shown.join("full"), shown.join("plain"));
    mknodat(CWD, &full, FileType::CharacterDevice, Mode::RUSR, rustix::fs::makedev(1, 5)).unwrap();
    fs::write(&plain, "").unwrap();
    let path = shown.join("either");
    symlink("plain", &path).unwrap();
    let over = AtomicBool::new(false);
    let load = || over.load(Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| {
            let next = shown.join("next");
            for target in ["full", "plain"].iter().cycle() {
                if load() {
                    break;
                }
                symlink(target, &next).unwrap();
                fs::rename(&next, &path).unwrap();
            }
        });
        let mut read = 0;
        for _ in 0..10_000 {
            let opened = session
                .ask(kind::OPEN, &[Text(path.as_os_str().as_bytes()), Int(open::READ), Int(0)]);
            let Reply::Handle(handle) = opened else { continue };
            let reply = session.ask(kind::READ, &[Text(&handle), Long(0), Int(9)]);
            read += usize::from(matches!(reply, Reply::Data(_)));
            session.done(kind::CLOSE, &[Text(&handle)]);
        }
        over.store(true, Ordering::Relaxed);
        assert_eq!(read, 0, "of a device");
    });
}

#[test]
fn a_session_as_a_user_has_the_rights_of_that_user() {
    let true = by_root() else { return };
    let (user, group) = (NOBODY.to_string(), (NOBODY - 1).to_string());
    for below in [false, true] {
        let (scratch, shown) = tree();
        set_id(&shown.join("program"));
        fs::write(shown.join("secret"), "secret").unwrap();
        fs::set_permissions(shown.join("secret"), Permissions::from_mode(0o600)).unwrap();
        fs::create_dir(shown.join("his")).unwrap();
        chown(shown.join("his"), Some(NOBODY), Some(NOBODY - 1)).unwrap();
        let ids = [Path::new("-U"), user.as_ref(), "-G".as_ref(), group.as_ref()];
        let arguments = [ids.as_slice(), &["-b".as_ref(), &*shown]].concat();
        let mut session = limited(&scratch, if below { &arguments } else { &arguments[..4] });
        let path = |name: &str| shown.join(name).as_os_str().as_bytes().to_owned();
        set_modes(&mut session, &shown.join("his"));
        let about = fs::metadata(shown.join("his/a")).unwrap();
        assert_eq!((about.uid(), about.gid()), (NOBODY, NOBODY - 1));
        let same = [Text(&path("his/a")), Int(OWNER), Int(NOBODY), Int(NOBODY - 1)];
        session.done(kind::SETSTAT, &same);
        for (what, fields) in [
            (kind::OPEN, &[Text(&path("program")), Int(open::WRITE), Int(0)][..]),
            (kind::OPEN, &[Text(&path("secret")), Int(open::READ), Int(0)]),
            (kind::OPEN, &[Text(&path("new")), Int(open::WRITE | open::CREATE), Int(0)]),
            (kind::SETSTAT, &[Text(&path("program")), Int(SIZE), Long(0)]),
            (kind::SETSTAT, &[Text(&path("program")), Int(MODE), Int(0o777)]),
            (kind::SETSTAT, &[Text(&path("his/a")), Int(OWNER), Int(0), Int(0)]),
            (kind::REMOVE, &[Text(&path("program"))]),
        ] {
            assert_eq!(session.ask(what, fields), DENIED, "{what} {fields:?}");
        }
        assert_eq!(mode(&shown.join("program")), 0o6755);
        let status = fs::read_to_string(format!("/proc/{}/status", session.server.0.id())).unwrap();
        assert!(status.contains("Groups:\t\n") || status.contains("Groups:\t \n"), "{status}");
    }
    // The server exits if it cannot become that user.
    let (scratch, _) = tree();
    fs::set_permissions(&scratch.0, Permissions::from_mode(0o777)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65533", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]);
    command.arg(agent()).args(["sftp-server", "-U", "0", "-G", "0"]).current_dir(&scratch.0);
    let mut session = Session::with(&mut command);
    session.hello();
    assert_eq!(session.ask(kind::STAT, &[Text(b"/")]), DENIED);
}

/// Starts a server that shows this directory, in a mount namespace where `script` ran before;
/// mounts propagate to others, as in a guest. `later` runs whenever the test creates the file `go`.
fn shows(scratch: &Scratch, directory: &Path, script: &str, later: &str) -> Session {
    let place = scratch.0.display();
    let root = scratch.0.join("root");
    fs::create_dir_all(root.join("run/mote")).unwrap();
    let script = format!(
        "set -e; cd {place}; mount --make-rshared /; {script}\n\
         {{ while [ ! -e go ] && [ -d root ]; do sleep 0.05; done; {later}; touch gone; }} </dev/null >/dev/null 2>&1 &\n\
         exec {} --root {} sftp-server -b {}",
        agent().display(),
        root.display(),
        directory.display()
    );
    let mut command = Command::new("unshare");
    let mut session = Session::with(command.args(["-m", "sh", "-c", &script]));
    session.hello();
    session
}

fn go(scratch: &Scratch) {
    put(scratch.0.join("go"), "");
    let gone = scratch.0.join("gone");
    until("the mount", Duration::from_secs(20), || gone.exists());
}

#[test]
fn does_not_show_mounts_below_a_directory() {
    let true = by_root() else { return };
    let scratch = Scratch::new();
    let shown = scratch.0.join("shown");
    for name in ["proc", "all", "later", "data", "sys"] {
        fs::create_dir_all(shown.join(name)).unwrap();
    }
    let before = "mount -t proc proc shown/proc; mount --rbind / shown/all; \
                  mount -t tmpfs tmpfs shown/data; touch shown/data/x; mount -t sysfs sysfs shown/sys";
    let mut session = shows(&scratch, &shown, before, "mount -t proc proc shown/later");
    let path = |name: &str| shown.join(name).as_os_str().as_bytes().to_owned();
    for turn in ["before", "after"] {
        for name in ["proc", "all", "data", "sys", "later"] {
            assert!(session.list(&path(name)).is_empty(), "{name} {turn}");
        }
        for name in ["proc/self/root/etc/passwd", "later/1/root/etc/passwd", "all/etc/passwd"] {
            assert_eq!(session.ask(kind::STAT, &[Text(&path(name))]), NO_SUCH_FILE, "{name}");
        }
        if turn == "before" {
            go(&scratch);
        }
    }
    let handle = session.open(&path("new"), open::WRITE | open::CREATE);
    session.done(kind::WRITE, &[Text(&handle), Long(0), Text(b"x")]);
    assert!(shown.join("new").exists());
}

#[test]
fn shows_a_directory_that_is_a_mount_point() {
    let true = by_root() else { return };
    let (scratch, shown) = tree();
    let before = "mount -t tmpfs tmpfs shown; touch shown/x; mount -o remount,bind,ro shown";
    let mut session = shows(&scratch, &shown, before, "true");
    assert_eq!(session.list(shown.as_os_str().as_bytes()).len(), 1);
    let new = shown.join("new");
    let fields = [Text(new.as_os_str().as_bytes()), Int(open::WRITE | open::CREATE), Int(0)];
    assert_eq!(session.ask(kind::OPEN, &fields), Reply::Status(4), "read-only");
}

#[test]
fn does_not_show_proc_below_a_directory() {
    let true = by_root() else { return };
    let (scratch, shown) = tree();
    for directory in [shown.clone(), "/proc/self".into(), "/proc/sys/kernel".into()] {
        let mut session = shows(&scratch, &directory, "mount -t proc proc shown", "true");
        assert_eq!(session.ask(kind::STAT, &[Text(b"/")]), DENIED, "{}", directory.display());
    }
}
