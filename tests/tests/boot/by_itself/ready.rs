//! Ready without an application: the conditions of `ready-when`, and the report to the host.

use std::cell::Cell;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use mote_tests::proc::processes;
use mote_tests::{patient, wait};
use rustix::process::Signal;

use crate::world::{Boot, LIMIT, connected, terminate};

/// The agent checks its conditions every second.
const LOOKS: Duration = Duration::from_millis(2500);
const TCP: &str =
    "  sl  local_address rem_address   st\n   0: 00000000:0050 00000000:0000 0A 0:0\n";

fn status(boot: &Boot) -> String {
    boot.host.state()["status"].as_str().unwrap_or_default().to_owned()
}

fn watcher(boot: &Boot) -> Option<u32> {
    let root = boot.root("").display().to_string();
    let is_it = |words: &str| {
        words.contains("\0ready-when\0") && words.contains(root.trim_end_matches('/'))
    };
    processes().find(|(_, words)| is_it(words)).map(|(pid, _)| pid)
}

/// Waits until it has checked twice: it sleeps after each check.
fn looks_twice(boot: &Boot) {
    let pid = wait("the process that looks", LIMIT, || watcher(boot)).0;
    let sleeps = || -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse().ok()).expect("its sleeps")
    };
    let before = sleeps();
    wait("two looks", LIMIT, || (sleeps() > before + 2).then_some(()));
}

fn is_ready(boot: &Boot) {
    wait("Ready", LIMIT, || (status(boot) == "Ready").then_some(()));
}

#[test]
fn reports_ready_once_all_conditions_hold() {
    let boot = Boot::new("lxd");
    let check = boot.scratch.0.join("check");
    let words = format!("/usr/bin/test -e {}", check.display());
    boot.put(
        "etc/mote-agent.yml",
        &format!(
            "ready-when:\n- init\n- cloud-init\n- port 80\n- port /run/db\n- command {words}\n"
        ),
    );
    boot.put("run/openrc/softlevel", "default\n");
    boot.put("run/openrc/rc.starting/x", "");
    let mut agent = boot.start(&[]);
    connected(&boot, 1);
    let socket = Cell::new(None);
    let steps: [(&str, &dyn Fn()); 5] = [
        ("command", &|| mote_tests::put(&check, "")),
        ("unix", &|| socket.set(UnixListener::bind(boot.root("run/db")).ok())),
        ("tcp", &|| boot.put("proc/net/tcp6", TCP)),
        ("cloud-init", &|| boot.put("run/cloud-init/result.json", "{}")),
        ("init", &|| std::fs::remove_dir_all(boot.root("run/openrc/rc.starting")).unwrap()),
    ];
    for (what, step) in steps {
        looks_twice(&boot);
        assert_ne!(status(&boot), "Ready", "before {what}");
        step();
    }
    is_ready(&boot);
    boot.logged("ready-when: all conditions held; reported Ready");
    // As with Ready of an application: a restarted agent does not repeat it, unless the host
    // restarts.
    assert_eq!(terminate(&mut agent), Some(0));
    let _agent = boot.start(&[]);
    connected(&boot, 2);
    std::thread::sleep(LOOKS);
    assert_eq!(boot.log().matches("ready-when: all conditions held").count(), 1);
}

#[test]
fn accepts_an_applications_ready_and_repeats_a_hanging_command() {
    let boot = Boot::new("lxd");
    // Found by its number.
    let line = format!("/usr/bin/sleep 36{}", std::process::id());
    boot.put("etc/mote-agent.yml", &format!("ready-when: [command {line}]\n"));
    let _agent = boot.start(&[]);
    connected(&boot, 1);
    let is_it = |words: &str| words.trim_end_matches('\0').replace('\0', " ") == line;
    let running = || processes().find(|(_, words)| is_it(words)).map(|(pid, _)| pid);
    let (first, _) = wait("the command", LIMIT, running);
    wait("another one", LIMIT, || running().filter(|one| *one != first));
    assert_eq!(boot.ask(&["started"]).0, Some(0));
    wait("no command", LIMIT, || running().is_none().then_some(()));
    std::thread::sleep(LOOKS);
    assert!(running().is_none() && !boot.log().contains("ready-when: all conditions held"));
}

#[test]
fn reports_ready_after_kills_and_obstacles() {
    let boot = Boot::new("lxd");
    let check = boot.scratch.0.join("check");
    let list = format!("ready-when:\n- command {}\n- port /run/db\n", check.display());
    boot.put("etc/mote-agent.yml", &list);
    let _agent = boot.start(&[]);
    connected(&boot, 1);
    boot.logged(&format!("ready-when: {}: no such program", check.display()));
    // As if the kernel's OOM killer did it.
    let (process, _) = wait("its process", LIMIT, || watcher(&boot));
    mote_tests::kill(Signal::KILL, process);
    boot.logged("ready-when: worker failed; restarting it");
    std::os::unix::fs::symlink("/bin/true", &check).unwrap();
    let _socket = UnixListener::bind(boot.root("run/db")).unwrap();
    is_ready(&boot);
    assert_eq!(boot.log().matches("no such program").count(), 1);
}

#[test]
fn an_initramfs_before_a_root_is_not_ready() {
    let boot = Boot::new("lxd");
    boot.put("etc/mote-agent.yml", "ready-when: [cloud-init]\n");
    boot.put("run/cloud-init/result.json", "{}");
    let mut early = boot.start(&["--initramfs"]);
    connected(&boot, 1);
    std::thread::sleep(LOOKS);
    assert_ne!(status(&boot), "Ready");
    assert_eq!(terminate(&mut early), Some(0));
    let _own = boot.start(&[]);
    is_ready(&boot);
}

#[test]
fn runs_no_condition_command_once_the_policy_limits_exec() {
    let boot = Boot::new("lxd");
    let ran = boot.scratch.0.join("ran");
    let waits = format!("ready-when: [cloud-init, command /usr/bin/touch {}]\n", ran.display());
    let limits = "features: {guestapi: true, files: {below: [/srv]}}\n";
    let off = "ready-when is off: it has a command, and exec is denied or limited";
    // The condition before the command holds only then.
    boot.put("etc/mote-agent.yml", &waits);
    let agent = boot.start(&[]);
    boot.serves();
    let loud = boot.log().matches(off).count();
    boot.put("etc/mote-agent.yml", &format!("{waits}{limits}"));
    mote_tests::kill(Signal::HUP, agent.0.id());
    wait("the new policy", LIMIT, || (boot.log().matches(off).count() > loud).then_some(()));
    boot.put("run/cloud-init/result.json", "{}");
    std::thread::sleep(LOOKS);
    assert!(!ran.exists());
    // The policy allows it again.
    boot.put("etc/mote-agent.yml", &waits);
    mote_tests::kill(Signal::HUP, agent.0.id());
    wait("the command", LIMIT, || ran.exists().then_some(()));
}

#[test]
fn does_not_overrule_an_application_that_is_faster() {
    let boot = Boot::new("lxd");
    let check = boot.scratch.0.join("check");
    // Found by its number.
    let line = format!("/usr/bin/test -e {}", check.display());
    boot.put("etc/mote-agent.yml", &format!("ready-when: [command {line}]\n"));
    let agent = boot.start(&[]);
    connected(&boot, 1);
    let looks = || {
        let parent = format!("/proc/{0}/task/{0}/children", agent.0.id());
        !std::fs::read_to_string(parent).unwrap_or_default().trim().is_empty()
    };
    wait("the process that looks", LIMIT, || looks().then_some(()));
    // The application's message is in flight when all conditions hold.
    let slow = patient(Duration::from_secs(3)).as_millis().to_string();
    boot.host.ok(&["fault", mote_tests::host::NAME, "slow", &slow]);
    let mut application = boot.command(&["ready"]).spawn().unwrap();
    let asked = || (boot.host.state()["last_request"] == "PATCH /1.0").then_some(());
    wait("the host asked", LIMIT, asked);
    mote_tests::put(&check, "");
    wait("the end of the process that looks", LIMIT, || (!looks()).then_some(()));
    assert!(application.try_wait().unwrap().is_none(), "too slow to be a race");
    boot.host.ok(&["fault", mote_tests::host::NAME, "none"]);
    assert!(application.wait().unwrap().success());
    // Its next message waits for the Ready of `ready-when`.
    assert_eq!(boot.ask(&["started"]).0, Some(0));
    let changes = || (boot.host.log().matches("PATCH /1.0 200").count() == 2).then_some(());
    wait("the host's second line", LIMIT, changes);
    assert!(!boot.log().contains("ready-when: all conditions held"));
}
