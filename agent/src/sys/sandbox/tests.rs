use std::fs::{File, OpenOptions, Permissions, create_dir_all};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use super::*;
use crate::sys::run_in_fork;

/// Time limit of a child.
const LIMIT: Duration = Duration::from_secs(10);
const NONE: Needs<'_> = Needs { ports: [None; 2], guests: None, sockets: [0; KINDS] };

fn opens(path: &Path) -> bool {
    File::open(path).is_ok()
}

#[test]
fn sandbox_permits_only_the_agents_own_files() {
    let root = crate::runtime::scratch("sandbox");
    for path in ["run/mote", "dev/lxd", "etc"] {
        create_dir_all(root.join(path)).unwrap();
    }
    let at = |path: &str| root.join(path);
    // Every file is world-accessible, so only Landlock can deny access.
    let open = |path: &str| std::fs::set_permissions(at(path), Permissions::from_mode(0o777));
    for path in ["dev/port", "dev/disk", "etc/shadow", "run/mote/status", "dev/lxd/off"] {
        std::fs::write(at(path), "x").unwrap();
        open(path).unwrap();
    }
    for path in ["run/mote", "dev", "dev/lxd", "etc"] {
        open(path).unwrap();
    }
    let (port, guests) = (at("dev/port"), at("dev/lxd"));
    let needs = Needs { ports: [Some(&port), None], guests: Some(&guests), sockets: [0; KINDS] };
    if !run_in_fork(LIMIT, &|| enter(&root, &needs)) {
        return mote_machine::skipped("a kernel with Landlock and seccomp");
    }
    let inside = |work: &dyn Fn() -> bool| run_in_fork(LIMIT, &|| enter(&root, &needs) && work());
    let write = |path: &str| OpenOptions::new().write(true).truncate(true).open(at(path)).is_ok();
    assert!(inside(&|| write("dev/port") && opens(&port) && write("run/mote/status")));
    assert!(inside(&|| std::fs::write(at("run/mote/new"), "x").is_err()));
    assert!(inside(&|| std::fs::remove_file(at("run/mote/status")).is_err()));
    assert!(inside(&|| std::fs::write(at("dev/lxd/new"), "x").is_err()));
    assert!(inside(&|| opens(Path::new("/proc/self/stat"))));
    assert!(inside(&|| !opens(&at("dev/disk")) && !write("dev/disk")));
    assert!(inside(&|| !opens(&at("etc/shadow")) && !opens(Path::new("/etc/passwd"))));
    assert!(inside(&|| std::fs::write(at("etc/new"), "x").is_err()));
    assert!(inside(&|| std::fs::write(at("dev/new"), "x").is_err()));
    assert_eq!(std::fs::read(at("etc/shadow")).unwrap(), b"x");
}

#[test]
fn sandbox_refuses_most_system_calls() {
    let root = Path::new("/nowhere");
    if !run_in_fork(LIMIT, &|| enter(root, &NONE)) {
        return mote_machine::skipped("a kernel with Landlock and seccomp");
    }
    let refused = |call: &dyn Fn() -> i64| {
        let errno = || std::io::Error::last_os_error().raw_os_error();
        run_in_fork(LIMIT, &|| enter(root, &NONE) && call() == -1 && errno() == Some(libc::EPERM))
    };
    // SAFETY: each call fails before it reads its arguments, and the forked child ends at once.
    unsafe {
        assert!(refused(&|| libc::unshare(libc::CLONE_NEWUSER).into()));
        assert!(refused(&|| libc::syscall(libc::SYS_clone, libc::CLONE_NEWUSER, 0, 0, 0, 0)));
        assert!(refused(&|| libc::syscall(libc::SYS_bpf, 0, 0, 0)));
        assert!(refused(&|| libc::syscall(libc::SYS_ptrace, 0, 0, 0, 0)));
        assert!(refused(&|| libc::syscall(libc::SYS_finit_module, 0, 0, 0)));
        assert!(refused(&|| libc::mount(null(), c"/".as_ptr(), null(), 0, null().cast()).into()));
        for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_PACKET] {
            assert!(refused(&|| libc::socket(family, libc::SOCK_STREAM, 0).into()), "{family}");
        }
        let mut two = [0; 2];
        let pair = two.as_mut_ptr();
        assert!(refused(&|| libc::socketpair(1, libc::SOCK_STREAM, 0, pair).into()));
        assert!(refused(&|| libc::ioctl(0, libc::TIOCSTI, c"x".as_ptr()).into()));
        assert!(!refused(&|| libc::ioctl(0, libc::FIONBIO, pair).into()));
        assert!(refused(&|| libc::chmod(c"/".as_ptr(), 0o755).into()));
        assert!(refused(
            &|| libc::prlimit(1, libc::RLIMIT_CORE, std::ptr::null(), null_mut()).into()
        ));
        assert!(!refused(
            &|| libc::prlimit(0, libc::RLIMIT_CORE, std::ptr::null(), null_mut()).into()
        ));
        assert!(!refused(&|| libc::getpid().into()));
        let child = || {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(0);
            }
            child > 0
        };
        assert!(run_in_fork(LIMIT, &|| enter(root, &NONE) && child()));
    }
}

#[test]
fn sandbox_drops_all_of_roots_rights() {
    let root = crate::runtime::scratch("user");
    std::fs::set_permissions(&root, Permissions::from_mode(0o755)).unwrap();
    let secret = root.join("secret");
    std::fs::write(&secret, "x").unwrap();
    std::fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    if !run_in_fork(LIMIT, &|| enter(&root, &NONE)) {
        return mote_machine::skipped("root, and a kernel with Landlock and seccomp");
    }
    let parent = i32::try_from(std::process::id()).unwrap();
    let inside = |work: &dyn Fn() -> bool| run_in_fork(LIMIT, &|| enter(&root, &NONE) && work());
    // SAFETY: numbers, and a structure to write to.
    unsafe {
        assert!(inside(&|| libc::getuid() == USER && libc::geteuid() == USER));
        assert!(inside(&|| libc::kill(parent, 0) == -1 && libc::kill(1, 0) == -1));
    }
    // The user alone has no access, without Landlock too.
    assert!(run_in_fork(LIMIT, &|| leave_user() && !opens(&secret)));
    assert!(opens(&secret));
}

#[test]
fn forbids_core_dumps_and_tracing_by_users() {
    // SAFETY: this takes no pointers.
    let dumpable = || unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) };
    let kept = || {
        crate::sys::keep_secrets();
        dumpable() == 0
    };
    assert!(run_in_fork(LIMIT, &kept) && dumpable() == 1);
}

fn null_mut<T>() -> *mut T {
    std::ptr::null_mut()
}

fn null() -> *const libc::c_char {
    std::ptr::null()
}
