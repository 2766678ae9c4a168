//! Actions of an agent without a request: it reports Ready, and starts with a stored host.

use mote_tests::prelude::*;

use crate::world::{Boot, LIMIT, terminate};

/// A time longer than two checks of `ready-when`, which happen every second.
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
    proc::processes().find(|(_, words)| is_it(words)).map(|(pid, _)| pid)
}

/// Waits until the agent's process for `ready-when` has checked twice: it sleeps after each check.
fn looks_twice(boot: &Boot) {
    let pid = wait("the process that looks", LIMIT, || watcher(boot)).0;
    let sleeps = || -> u64 {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse().ok()).expect("its sleeps")
    };
    let before = sleeps();
    until("two looks", LIMIT, || sleeps() > before + 2);
}

fn is_ready(boot: &Boot) {
    until("Ready", LIMIT, || status(boot) == "Ready");
}

#[test]
fn a_long_file_of_ready_costs_no_memory() {
    let boot = Boot::new("lxd");
    boot.put("run/mote/ready", "Ready");
    // The file is writable for its group, which is that of the sandbox.
    let file = File::options().write(true).open(boot.root("run/mote/ready")).unwrap();
    file.set_len(1 << 30).unwrap();
    let agent = boot.up(&[]);
    let peak = proc::memory(agent.0.id(), "status", "VmHWM");
    assert!(peak < 64 * 1024, "{peak} kB");
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
    let mut agent = boot.up(&[]);
    let socket = Cell::new(None);
    let steps: [(&str, &dyn Fn()); 5] = [
        ("command", &|| put(&check, "")),
        ("unix", &|| socket.set(UnixListener::bind(boot.root("run/db")).ok())),
        ("tcp", &|| boot.put("proc/net/tcp6", TCP)),
        ("cloud-init", &|| boot.put("run/cloud-init/result.json", "{}")),
        ("init", &|| fs::remove_dir_all(boot.root("run/openrc/rc.starting")).unwrap()),
    ];
    for (what, step) in steps {
        looks_twice(&boot);
        assert_ne!(status(&boot), "Ready", "before {what}");
        step();
    }
    is_ready(&boot);
    boot.logged("ready-when: all conditions held; reported Ready");
    // As with an application's Ready, a restarted agent repeats it only if the host restarts.
    assert_eq!(terminate(&mut agent), Some(0));
    let _agent = boot.up(&[]);
    thread::sleep(LOOKS);
    assert_eq!(boot.log().matches("ready-when: all conditions held").count(), 1);
}

#[test]
fn accepts_an_applications_ready_and_repeats_a_hanging_command() {
    let boot = Boot::new("lxd");
    // The test finds the command by its number.
    let line = format!("/usr/bin/sleep 36{}", std::process::id());
    boot.put("etc/mote-agent.yml", &format!("ready-when: [command {line}]\n"));
    let _agent = boot.up(&[]);
    let is_it = |words: &str| words.trim_end_matches('\0').replace('\0', " ") == line;
    let running = || proc::processes().find(|(_, words)| is_it(words)).map(|(pid, _)| pid);
    let (first, _) = wait("the command", LIMIT, running);
    wait("another one", LIMIT, || running().filter(|one| *one != first));
    assert_eq!(boot.ask(&["started"]).0, Some(0));
    until("no command", LIMIT, || running().is_none());
    thread::sleep(LOOKS);
    assert!(running().is_none() && !boot.log().contains("ready-when: all conditions held"));
}

#[test]
fn reports_ready_after_kills_and_obstacles() {
    let boot = Boot::new("lxd");
    let check = boot.scratch.0.join("check");
    let list = format!("ready-when:\n- command {}\n- port /run/db\n", check.display());
    boot.put("etc/mote-agent.yml", &list);
    let _agent = boot.up(&[]);
    boot.logged(&format!("ready-when: {}: no such program", check.display()));
    // Kills the process as the kernel's OOM killer would.
    let (process, _) = wait("its process", LIMIT, || watcher(&boot));
    kill(Signal::KILL, process);
    boot.logged("ready-when: worker failed; restarting it");
    symlink("/bin/true", &check).unwrap();
    let _socket = UnixListener::bind(boot.root("run/db")).unwrap();
    is_ready(&boot);
    assert_eq!(boot.log().matches("no such program").count(), 1);
}

#[test]
fn an_initramfs_before_a_root_is_not_ready() {
    let boot = Boot::new("lxd");
    boot.put("etc/mote-agent.yml", "ready-when: [cloud-init]\n");
    boot.put("run/cloud-init/result.json", "{}");
    let mut early = boot.up(&["--initramfs"]);
    thread::sleep(LOOKS);
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
    // The condition before the command holds only after the policy has changed.
    boot.put("etc/mote-agent.yml", &waits);
    let agent = boot.start(&[]);
    boot.serves();
    let loud = boot.log().matches(off).count();
    boot.put("etc/mote-agent.yml", &format!("{waits}{limits}"));
    kill(Signal::HUP, agent.0.id());
    until("the new policy", LIMIT, || boot.log().matches(off).count() > loud);
    boot.put("run/cloud-init/result.json", "{}");
    thread::sleep(LOOKS);
    assert!(!ran.exists());
    // The policy allows the command again.
    boot.put("etc/mote-agent.yml", &waits);
    kill(Signal::HUP, agent.0.id());
    until("the command", LIMIT, || ran.exists());
}

#[test]
fn does_not_overrule_an_application_that_is_faster() {
    let boot = Boot::new("lxd");
    let check = boot.scratch.0.join("check");
    let list = format!("ready-when: [command /usr/bin/test -e {}]\n", check.display());
    boot.put("etc/mote-agent.yml", &list);
    let _agent = boot.up(&[]);
    until("the process that looks", LIMIT, || watcher(&boot).is_some());
    // The application's message is in flight when all conditions hold.
    let slow = patient(Duration::from_secs(3)).as_millis().to_string();
    boot.host.ok(&["fault", NAME, "slow", &slow]);
    let mut application = boot.command(&["ready"]).spawn().unwrap();
    until("the host asked", LIMIT, || boot.host.state()["last_request"] == "PATCH /1.0");
    put(&check, "");
    until("the end of the process that looks", LIMIT, || watcher(&boot).is_none());
    assert!(application.try_wait().unwrap().is_none(), "too slow to be a race");
    boot.host.ok(&["fault", NAME, "none"]);
    assert!(application.wait().unwrap().success());
    // The application's next message waits for the Ready of `ready-when`.
    assert_eq!(boot.ask(&["started"]).0, Some(0));
    until("the host's second line", LIMIT, || {
        boot.host.log().matches("PATCH /1.0 200").count() == 2
    });
    assert!(!boot.log().contains("ready-when: all conditions held"));
}

#[test]
fn starts_with_the_stored_host_if_the_share_is_missing() {
    let true = by_root() else { return };
    let mut boot = Boot::new("lxd");
    let kept = boot.scratch.0.join("kept");
    let arguments = ["--remember", kept.to_str().unwrap()];
    let mut agent = boot.up(&arguments);
    let names = ["agent.crt", "agent.key", "server.crt", "agent.conf"];
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&kept), 0o700);
    for name in names {
        assert_eq!(mode(&kept.join(name)), 0o600, "{name}");
        assert!(
            fs::read(kept.join(name)).unwrap() == fs::read(boot.host.share.join(name)).unwrap()
        );
    }
    // The host returns with another address, and calls.
    boot.host.restart();
    let client = boot.client();
    let told = client.host_info().unwrap().to_string();
    client.announce();
    assert_eq!(fs::read_to_string(kept.join("agent.conf")).unwrap(), told);
    assert_eq!(terminate(&mut agent), Some(0));

    // Simulates the next boot, without a share and with an empty /run.
    fs::rename(&boot.host.share, boot.scratch.0.join("gone")).unwrap();
    fs::remove_dir_all(boot.root("run/mote")).unwrap();
    let (_, said) = boot.says(&[&arguments[..], &["--check"]].concat());
    let _agent = boot.start(&arguments);
    boot.logged(&format!("files from {}", kept.display()));
    boot.logged(": CONNECTED ");
    assert!(said.contains("kept"), "{said}");
}

#[test]
fn ignores_files_that_others_can_change() {
    let true = by_root() else { return };
    let boot = Boot::new("lxd");
    let kept = boot.scratch.0.join("kept");
    fs::create_dir(&kept).unwrap();
    fs::set_permissions(&kept, PermissionsExt::from_mode(0o777)).unwrap();
    let arguments = ["--remember", kept.to_str().unwrap()];
    let mut agent = boot.up(&arguments);
    assert_eq!(terminate(&mut agent), Some(0));
    assert_eq!(fs::read_dir(&kept).unwrap().count(), 0);
    for name in ["agent.crt", "agent.key", "server.crt"] {
        fs::copy(boot.host.share.join(name), kept.join(name)).unwrap();
    }
    fs::rename(&boot.host.share, boot.scratch.0.join("gone")).unwrap();
    let mut command = boot.command(&arguments);
    assert_eq!(command.arg("--no-wait").status().unwrap().code(), Some(1), "{}", boot.log());
}
