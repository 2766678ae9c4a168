//! Code injected into a sandboxed agent can do only what docs/explanation/security.md says.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::os::unix::net::UnixDatagram;

use mote_injected::{Around, Injected, Way};
use mote_tests::prelude::*;

use crate::world::{Boot, terminate};

/// Privilege that these tests need in addition to root.
const TRACING: &str = "the right to trace root's processes (CAP_SYS_PTRACE)";

fn started(boot: &Boot, denied: &str) -> Process {
    let manager = boot.scratch.0.join("manager");
    let messages = UnixDatagram::bind(&manager).unwrap();
    let mut command = boot.command(&["--deny", denied]);
    let agent = Process::start(command.env("NOTIFY_SOCKET", &manager));
    boot.serves();
    boot.logged("CONNECTED");
    drop(messages);
    agent
}

fn assert_serves(boot: &Boot, agent: &mut Process) {
    boot.serves();
    assert_eq!(boot.client().ask("GET", "/1.0", "").unwrap().status, 200);
    assert_eq!(boot.ask(&["ready"]).0, Some(0), "{}", boot.log());
    assert_eq!(terminate(agent), Some(0), "{}", boot.log());
}

fn host(boot: &Boot) -> Way {
    let names = fs::read_dir(&boot.scratch.0).unwrap().map(|entry| entry.unwrap().path());
    let called = |path: &PathBuf| path.to_string_lossy().contains("/vs_");
    let all: Vec<_> = names.filter(called).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    Way::Unix(all.into_iter().next().unwrap())
}

#[test]
fn code_injected_into_a_sandboxed_agent_can_do_only_what_the_page_says() {
    let true = by_root() else { return };
    for (flavour, forwards) in [("lxd", true), ("incus", false)] {
        let boot = Boot::new(flavour);
        fs::create_dir_all(boot.root("sys")).unwrap();
        let also = if forwards { "" } else { ",port-forward" };
        let mut agent = started(&boot, &format!("exec,files,mounts,power{also}"));
        if !boot.log().contains("in a sandbox\n") {
            return skipped("a kernel with Landlock and seccomp");
        }
        let mut around = Around::new(&boot.root(""), host(&boot), &boot.scratch.0).unwrap();
        around.forwards = forwards;
        let Some(injected) = Injected::enter(agent.0.id()).unwrap() else {
            return skipped(TRACING);
        };
        let report = mote_injected::try_all(&injected, &around);
        let report = report.unwrap_or_else(|error| panic!("{error}\n{}", boot.log()));
        drop(injected);
        assert!(report.wrong.is_empty(), "{:#?}", report.wrong);
        assert!(around.other_lives(), "another process was signalled");
        println!("{flavour}: {} system calls", report.calls);
        assert_serves(&boot, &mut agent);
    }
}

/// Shows that the attempts work without a sandbox; otherwise the test above would prove nothing.
#[test]
fn code_injected_into_an_unsandboxed_agent_can_do_what_root_can() {
    let true = by_root() else { return };
    let boot = Boot::new("lxd");
    let mut agent = started(&boot, "exec");
    let Some(injected) = Injected::enter(agent.0.id()).unwrap() else {
        return skipped(TRACING);
    };
    let around = Around::new(&boot.root(""), host(&boot), &boot.scratch.0).unwrap();
    assert!(mote_injected::reads(&injected, &around, "/etc/shadow".as_ref()));
    drop(injected);
    assert_serves(&boot, &mut agent);
}
