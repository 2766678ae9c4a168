//! Programs in a one-file VM.

use mote_tests::wait;

use crate::{END, World};

/// The console shows when a program starts, does not exist or ends.
#[test]
fn starts_and_restarts_the_command_lines_programs() {
    let words = "mote.run=\"/init --version\" mote.run='/bin/nope' mote.rum=/x";
    let world = World::connected("plain", words);
    // There is no shell, and the one file can be executed like any program.
    let version = world.exec(&["/init", "--version"]).unwrap();
    assert_eq!(world.exec(&["mote-agent", "--version"]).unwrap(), version);
    assert_eq!(world.exec(&["mote-agent", "get", "user.foo"]).unwrap(), "bar\n");
    let console = world.console("/init: ended with exit code 0", 1);
    assert!(console.contains(&version.trim_end().to_owned()), "{console}");
    assert!(console.contains("warn: mote.rum: unknown word rum"), "{console}");
    assert!(console.contains("info: /bin/nope: No such file or directory"), "{console}");
    assert!(!console.contains("restarting in"), "{console}");
    let state = world.exec(&["mote-agent", "report", "state"]).unwrap();
    assert!(state.contains("\"lo\"") && state.contains("127.0.0.1"), "{state}");
    let check = world.exec(&["mote-agent", "--check"]).unwrap();
    assert!(check.contains("ok       vsock"), "{check}");
}

#[test]
fn restarts_programs_with_growing_delays() {
    let world = World::boot("plain", "mote.respawn mote.run=\"/init --version\"");
    let console = world.console("/init: ended with exit code 0; restarting in 0.8 s", 1);
    for pause in ["0.1", "0.2", "0.4"] {
        assert!(console.contains(&format!("restarting in {pause} s")), "{pause}: {console}");
    }
}

#[test]
fn reaps_all_zombies_next_to_busybox() {
    // It has a controlling terminal: /dev/tty can be opened and is the console.
    let words = "mote.hostname=one mote.run=\"sh -c 'echo from $(tty) >/dev/tty; sleep 9999'\"";
    let world = World::connected("busybox", words);
    world.console("from /dev/console", 1);
    let mounts = world.sh("cut -d' ' -f2 /proc/mounts");
    for place in ["/proc", "/sys", "/dev", "/dev/pts", "/dev/shm", "/run", "/tmp"] {
        assert!(mounts.lines().any(|line| line == place), "{place}: {mounts}");
    }
    assert_eq!(
        world.sh("echo a >/tmp/a; cat /dev/fd/3 3</tmp/a; pwd; uname -n"),
        "a\n/root\none\n"
    );
    // Orphans, some of which end after their parent.
    world.sh("for i in 1 2 3 4 5 6 7 8; do (sleep 0.$i; exit $i) & done");
    let zombies = "n=0; for s in /proc/[0-9]*/stat; do read -r a b c d <$s && [ \"$c\" = Z ] && n=$((n+1)); done 2>/dev/null; echo $n";
    wait("no zombie and no sleeper", END, || {
        (world.sh(zombies) == "0\n" && world.sh("pgrep -f 'sleep 0' | wc -l") == "0\n")
            .then_some(())
    });
    // The agent's end causes no panic, and PID 1 restarts it.
    let agent = "for s in /proc/[0-9]*/cmdline; do [ \"$(tr '\\0' ' ' <$s)\" = 'mote-agent ' ] && echo ${s//[^0-9]/}; done 2>/dev/null; true";
    let pid = world.sh(agent);
    assert!(pid.trim().parse::<u32>().is_ok_and(|pid| pid > 1), "{pid}");
    let _gone = world.exec(&["sh", "-c", &format!("kill -9 {pid}")]);
    world.console("mote-agent: ended by signal 9; restarting in 0.1 s", 1);
    let again = || world.exec(&["sh", "-c", agent]).ok().filter(|now| *now != pid);
    let (now, took) = wait("exec", END, again);
    println!("agent killed: exec after {took:?}");
    assert!(now.trim().parse::<u32>().is_ok(), "{now}");
    // A power button that was removed and added again still works.
    world.sh("rmmod button && sleep 0.5 && modprobe button");
    wait("the button", END, || {
        world
            .sh("ls /proc/1/fd -l | grep -c input/event")
            .trim()
            .parse::<u32>()
            .ok()
            .filter(|count| *count > 0)
    });
    world.0.vm.power_button();
    let console = world.ends();
    assert!(console.contains("the power button: switching off"), "{console}");
}
