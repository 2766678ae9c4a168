//! VMs whose image is one file: the agent as `/init` (`image/one-file`), alone or with busybox.

mod figures;

use mote_tests::prelude::*;

/// Limit from the shutdown request to QEMU's end. Programs get 5 s to end, and 2 s once killed.
pub(crate) const END: Duration = Duration::from_secs(40);

/// Returns an image: `plain`, `busybox`, `without` (an agent without init), or a Go agent's.
pub(crate) fn image(name: &str) -> PathBuf {
    tool("MOTE_ONE_FILE", "target/one-file").join(name)
}

pub(crate) fn boot(name: &str, words: &str) -> World {
    let spec = Spec { image: image(name), words: words.into(), ..Spec::default() };
    World::boot(Column::MoteLxd, &spec, &["user.foo=bar"])
}

pub(crate) fn connected(name: &str, words: &str) -> World {
    let mut world = boot(name, words);
    world.connected(BOOT);
    world
}

fn console(world: &World, mark: &str, times: usize) -> String {
    let look = || Some(world.vm.console()).filter(|text| text.matches(mark).count() >= times);
    wait(mark, END, look).0
}

/// Waits for STOPPED at the host and QEMU's end without a kernel panic; returns the console's text.
pub(crate) fn ends(mut world: World) -> String {
    world.host.stopped(END);
    world.vm.ended(END);
    let console = world.vm.console();
    assert!(!console.contains("Kernel panic"), "{console}");
    console
}

/// The console reports a program that starts, that ends, and that does not exist.
#[test]
fn starts_and_restarts_the_command_lines_programs() {
    let words = "mote.run=\"/init --version\" mote.run='/bin/nope' mote.rum=/x";
    let world = connected("plain", words);
    // There is no shell, and the one file can be executed like any program.
    let version = world.host.exec(&["/init", "--version"]).unwrap();
    assert_eq!(world.host.exec(&["mote-agent", "--version"]).unwrap(), version);
    assert_eq!(world.host.exec(&["mote-agent", "get", "user.foo"]).unwrap(), "bar\n");
    let console = console(&world, "/init: ended with exit code 0", 1);
    assert!(console.contains(&version.trim_end().to_owned()), "{console}");
    assert!(console.contains("warn: mote.rum: unknown word rum"), "{console}");
    assert!(console.contains("info: /bin/nope: No such file or directory"), "{console}");
    assert!(!console.contains("restarting in"), "{console}");
    let state = world.host.exec(&["mote-agent", "report", "state"]).unwrap();
    assert!(state.contains("\"lo\"") && state.contains("127.0.0.1"), "{state}");
    contains(world.host.exec(&["mote-agent", "--check"]).unwrap(), &["ok       vsock"]);
}

#[test]
fn restarts_programs_with_growing_delays() {
    let world = boot("plain", "mote.respawn mote.run=\"/init --version\"");
    let console = console(&world, "/init: ended with exit code 0; restarting in 0.8 s", 1);
    for pause in ["0.1", "0.2", "0.4"] {
        assert!(console.contains(&format!("restarting in {pause} s")), "{pause}: {console}");
    }
}

#[test]
fn reaps_all_zombies_next_to_busybox() {
    // The program has a controlling terminal: /dev/tty can be opened and is the console.
    let words = "mote.hostname=one mote.run=\"sh -c 'echo from $(tty) >/dev/tty; sleep 9999'\"";
    let world = connected("busybox", words);
    console(&world, "from /dev/console", 1);
    let mounts = world.sh("cut -d' ' -f2 /proc/mounts");
    for place in ["/proc", "/sys", "/dev", "/dev/pts", "/dev/shm", "/run", "/tmp"] {
        assert!(mounts.lines().any(|line| line == place), "{place}: {mounts}");
    }
    assert_eq!(
        world.sh("echo a >/tmp/a; cat /dev/fd/3 3</tmp/a; pwd; uname -n"),
        "a\n/root\none\n"
    );
    // Create orphans, some of which end after their parent.
    world.sh("for i in 1 2 3 4 5 6 7 8; do (sleep 0.$i; exit $i) & done");
    let zombies = "n=0; for s in /proc/[0-9]*/stat; do read -r a b c d <$s && [ \"$c\" = Z ] && n=$((n+1)); done 2>/dev/null; echo $n";
    until("no zombie and no sleeper", END, || {
        world.sh(zombies) == "0\n" && world.sh("pgrep -f 'sleep 0' | wc -l") == "0\n"
    });
    // The agent's end causes no panic, and PID 1 restarts it.
    let agent = "for s in /proc/[0-9]*/cmdline; do [ \"$(tr '\\0' ' ' <$s)\" = 'mote-agent ' ] && echo ${s//[^0-9]/}; done 2>/dev/null; true";
    let pid = world.sh(agent);
    assert!(pid.trim().parse::<u32>().is_ok_and(|pid| pid > 1), "{pid}");
    let _gone = world.host.exec(&["sh", "-c", &format!("kill -9 {pid}")]);
    console(&world, "mote-agent: ended by signal 9; restarting in 0.1 s", 1);
    let again = || world.host.exec(&["sh", "-c", agent]).ok().filter(|now| *now != pid);
    let (now, _) = wait("exec", END, again);
    assert!(now.trim().parse::<u32>().is_ok(), "{now}");
    // A power button that was removed and added again still works.
    world.sh("rmmod button && sleep 0.5 && modprobe button");
    let button = "ls /proc/1/fd -l | grep -c input/event || true";
    until("the button", END, || world.sh(button).trim() != "0");
    world.vm.power_button();
    contains(ends(world), &["info: the power button: switching off", "reboot: Power down"]);
}

#[test]
fn ctrl_alt_del_reboots_in_order() {
    let world = connected("plain", "mote.run=/bin/nope mote.respawn");
    console(&world, "/bin/nope: No such file or directory (os error 2); restarting in", 2);
    world.vm.ctrl_alt_del();
    contains(ends(world), &["info: ctrl-alt-del: rebooting", "reboot: Restarting system"]);
}

#[test]
fn a_signal_powers_off_and_kills_a_stubborn_program() {
    let words = "mote.run=\"sh -c 'trap : TERM; echo deaf; while :; do sleep 1; done'\"";
    let world = connected("busybox", words);
    console(&world, "deaf", 1);
    world.sh("mkdir /run/x && mount -t iso9660 -o ro /dev/vda /run/x && ls /run/x/agent.crt");
    let _gone = world.host.exec(&["sh", "-c", "kill 1"]);
    let console = ends(world);
    contains(&console, &["info: a signal: switching off", "killing processes that did not exit"]);
    assert!(!console.contains("some file systems stay mounted"), "{console}");
}

#[test]
fn the_hosts_commands_power_off_and_reboot() {
    // None of these images has a program for power-off. In the last VM, process 1 is busybox' init.
    for (image, words, command, said) in [
        ("plain", "", "poweroff", "reboot: Power down"),
        ("plain", "", "reboot", "reboot: Restarting system"),
        ("plain", "mote.agent=\"--deny exec\"", "halt", "reboot: Power down"),
        ("busybox", "", "poweroff", "reboot: Power down"),
        ("busybox", "rdinit=/bin/busybox init", "poweroff", "reboot: Power down"),
    ] {
        let world = connected(image, words);
        if image == "busybox" {
            // Replaces the files as an upgrade does, which then restarts the agent in place.
            world.sh("for f in /init /bin/busybox; do cp $f $f.new && mv $f.new $f; done");
            world.sh("kill -HUP $(sed 's/.*\"pid\":\\([0-9]*\\).*/\\1/' /run/mote/status)");
            console(&world, "restarting in place", 1);
            until("the agent", END, || world.host.sh(":").is_ok());
        }
        assert_eq!(world.host.exec(&[command]), Ok(String::new()), "{image} {command}");
        let console = ends(world);
        contains(&console, &[&format!("{command} for the host: asking process 1")]);
        assert!(console.contains(said), "{command}: {console}");
    }
}

/// LXD's rules for micro VMs: it does not read the status port, polls the agent, and stops the VM
/// by `poweroff`.
#[test]
fn works_as_a_micro_vm() {
    let scratch = Scratch::new();
    let (directory, image) = (scratch.0.join("d"), image("plain"));
    let host = |args: &[&str]| {
        let (out, err, code) = vm::kept(&directory, args);
        assert_eq!(code, Some(0), "{args:?}: {err}");
        out
    };
    let state = || serde_json::from_str::<Value>(&host(&["agent-state", "vm1"])).expect("JSON");
    let (kernel, initrd) = (image.join("vmlinuz"), image.join("initrd"));
    let boot = "boot vm1 --flavour lxd-micro --machine microvm --accel tcg --config user.foo=bar";
    let files = ["--kernel", plain(&kernel), "--initrd", plain(&initrd)];
    host(&[&boot.split(' ').collect::<Vec<_>>()[..], &files].concat());
    let [pushed, pulled] = ["pushed", "pulled"].map(|name| scratch.0.join(name));
    fs::write(&pushed, "as it was").expect("a file");
    for _ in 0..2 {
        assert!(!directory.join("instances/vm1/config/agent.conf").exists());
        assert_eq!(host(&["exec", "vm1", "--", "mote-agent", "get", "user.foo"]), "bar\n");
        host(&["exec", "vm1", "--", "mote-agent", "ready"]);
        host(&["wait", "vm1", "--for", "Ready", "--timeout", "60"]);
        host(&["file", "push", plain(&pushed), "vm1/tmp/file"]);
        host(&["file", "pull", "vm1/tmp/file", plain(&pulled)]);
        assert_eq!(fs::read_to_string(&pulled).expect("a file"), "as it was");
        assert!(host(&["state", "vm1"]).contains("\"lo\""));
        let connected = state();
        assert_eq!((&connected["port"], &connected["last_line"]), (&8444.into(), &"".into()));
        host(&["stop", "vm1"]);
        assert_eq!(state()["why"]["cause"], "shut-down");
        let console = fs::read_to_string(directory.join("instances/vm1/console"));
        assert!(console.expect("its console").contains("System halted"));
        host(&["start", "vm1"]);
        host(&["wait", "vm1", "--for", "CONNECTED", "--timeout", "180"]);
    }
    host(&["delete", "--force", "vm1"]);
}

#[test]
fn a_build_without_init_reports_that_as_process_1() {
    let mut world = boot("without", "");
    let look = || Some(world.vm.console()).filter(|text| text.contains("process 1, but"));
    let (console, _) = wait("the line", BOOT, look);
    assert!(console.contains("built without init"), "{console}");
    thread::sleep(END / 10);
    assert!(!world.vm.has_ended() && !world.vm.console().contains("Kernel panic"));
}

#[test]
fn writes_its_row_of_the_table_of_ways() {
    let world = connected("busybox", "");
    let power_on = world.begun.elapsed();
    let member = |name: &str| {
        let text = world.sh("cat /run/mote/status");
        let status: Value = serde_json::from_str(&text).expect("JSON");
        status[name].as_u64().unwrap_or_else(|| panic!("{name}: {text}"))
    };
    let pid = member("pid");
    until("its status", BOOT, || world.sh("cat /run/mote/status").contains("\"CONNECTED\""));
    let connected = Duration::from_millis(member("since_uptime_ms"));
    let start = proc::started(&world.sh(&format!("cat /proc/{pid}/stat")));
    let agent_start = connected.saturating_sub(start);
    let memory = |pid: u64| {
        let text = world.sh(&format!("cat /proc/{pid}/smaps_rollup"));
        proc::kilobytes(&text, "Pss:").expect("its memory")
    };
    let (pss, first) = (memory(pid), memory(1));
    println!("PSS of the agent {pss} kB, of process 1 {first} kB");
    assert!(first < 700, "process 1 has {first} kB");
    let kernel = world.sh("uname -r");
    world.vm.power_button();
    let _console = ends(world);
    let booted = format!("Linux {}, QEMU {}, 128 MiB", kernel.trim(), vm::PC);
    pages::way("one-file", &booted, [agent_start, power_on]);
}
