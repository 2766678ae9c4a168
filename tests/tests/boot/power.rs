//! The commands `poweroff`, `reboot` and `halt` that the agent executes itself. A FIFO stands for
//! sysvinit's init. `PATH` never leads to this machine's own programs.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use mote_tests::conform::prelude::*;

use rustix::fs::OFlags;

use crate::world::{Boot, LIMIT, terminate};

/// Reads requests like sysvinit's init.
struct Init(File);

impl Init {
    fn of(boot: &Boot, path: &str) -> Self {
        let path = boot.root(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fifo(&path);
        let nonblock = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
        Self(File::options().read(true).custom_flags(nonblock).open(path).unwrap())
    }

    fn runlevel(&mut self) -> Option<char> {
        let mut request = [0; 1024];
        match self.0.read(&mut request) {
            Ok(0) => None,
            Ok(count) => {
                assert_eq!((count, request[..4].to_vec()), (384, vec![0x69, 0x19, 9, 3]));
                Some(char::from(request[8]))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn asked(&mut self) -> char {
        wait("a request", LIMIT, || self.runlevel()).0
    }
}

/// Runs a command with this `PATH`. Returns the exit code and the error message.
fn exec(boot: &Boot, path: &str, options: &[&str], command: &[&str]) -> (Option<i32>, String) {
    let path = format!("PATH={path}");
    let options = [&["-T", "--env", &path][..], options].concat();
    let mut exec = boot.host.exec_with(&options, command);
    let output = exec.stdin(Stdio::null()).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn asks_process_1_if_the_image_has_no_such_program() {
    let (boot, _agent) = Boot::running("lxd", &[]);
    assert_eq!(exec(&boot, "/nowhere", &[], &["poweroff"]).0, Some(127));
    boot.logged("; cannot ask process 1 (): unknown");
    for place in ["dev/initctl", "run/initctl"] {
        let mut init = Init::of(&boot, place);
        for (name, runlevel) in [("poweroff", '0'), ("reboot", '6'), ("halt", '0')] {
            exits(exec(&boot, "/nowhere", &[], &[name]), Some(0), &[]);
            assert_eq!(init.asked(), runlevel, "{name}");
        }
        // If PATH has a program of this name, the command runs it.
        let own = boot.scratch.0.join("bin");
        program(own.join("poweroff"), "#!/bin/sh\nexit 3\n");
        assert_eq!(exec(&boot, own.to_str().unwrap(), &[], &["poweroff"]).0, Some(3));
        assert_eq!(init.runlevel(), None);
    }
}

/// The agent waits 3 s for a host that listens to events, unless it ends earlier.
#[test]
fn the_host_gets_the_result_before_process_1_is_asked() {
    let boot = Boot::new("lxd");
    let mut init = Init::of(&boot, "run/initctl");
    for ends in [false, true] {
        let mut agent = boot.up(&[]);
        let client = boot.client();
        let _events = Ws::open(&client, "/1.0/events").unwrap();
        let begun = Instant::now();
        let request = with(plain(&["poweroff"]), json!({"environment": {"PATH": "/nowhere"}}));
        assert_eq!(Running::start(&client, &request).unwrap().exec.code(&client, LIMIT), Ok(0));
        if ends {
            assert_eq!((init.runlevel(), terminate(&mut agent)), (None, Some(0)));
        }
        assert_eq!(init.asked(), '0');
        assert!(ends || begun.elapsed() >= Duration::from_secs(3), "{:?}", begun.elapsed());
        agent.kill();
    }
}

#[test]
fn power_is_allowed_without_exec_and_denied_separately() {
    let boot = Boot::new("lxd");
    let mut init = Init::of(&boot, "run/initctl");
    let own = boot.scratch.0.join("bin");
    let ran = boot.scratch.0.join("ran");
    program(own.join("poweroff"), format!("#!/bin/sh\n: >{}\n", ran.display()));
    let own = own.to_str().unwrap();
    for (file, denied, answered) in [
        ("features: {power: true}", "", true),
        ("features: {power: true, exec: {users: [1000]}}", "", true),
        ("features: {power: true, exec: {commands: [/x]}}", "", true),
        ("", "exec", true),
        ("features: {exec: {users: [1000]}}", "", false),
        ("features: {exec: true}", "exec", false),
        ("", "exec,power", false),
    ] {
        boot.put("etc/mote-agent.yml", file);
        let before = boot.log().len();
        let mut agent = boot.start(&["--deny", denied]);
        until("CONNECTED", LIMIT, || boot.log()[before..].contains(" CONNECTED"));
        let (code, why) = exec(&boot, own, &[], &["poweroff"]);
        if answered {
            assert_eq!((code, init.asked()), (Some(0), '0'), "{file} {why}");
        } else {
            assert!(why.contains("The guest's policy does not allow exec"), "{file} {why}");
        }
        assert!(!ran.exists(), "{file}");
        // The agent executes no other command, and none with another user or other arguments.
        for (options, command) in [
            (&[][..], &["true"][..]),
            (&[], &["poweroff", "-f"]),
            (&["--user", "7"], &["poweroff"]),
        ] {
            let why = exec(&boot, own, options, command).1;
            assert!(why.contains("The guest's policy does not allow exec"), "{file} {why}");
        }
        assert_eq!(init.runlevel(), None, "{file}");
        agent.kill();
    }
    // If the policy denies `power`, a missing program is an ordinary error.
    boot.put("etc/mote-agent.yml", "features: {exec: true}");
    let before = boot.log().len();
    let _agent = boot.start(&[]);
    until("CONNECTED", LIMIT, || boot.log()[before..].contains(" CONNECTED"));
    assert_eq!(exec(&boot, "/nowhere", &[], &["poweroff"]).0, Some(127));
    assert!(!boot.log()[before..].contains("process 1"), "{}", boot.log());
    assert_eq!(exec(&boot, own, &[], &["poweroff"]).0, Some(0));
    assert!(ran.exists() && init.runlevel().is_none());
}
