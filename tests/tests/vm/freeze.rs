//! File systems frozen for a snapshot: they are thawed in time, whichever process is killed, and a
//! copy made while they are frozen is consistent.

use mote_tests::prelude::*;

const VOLUMES: [(&str, &str); 2] = [("journal", "/dev/vdb"), ("data", "/dev/vdc")];
const SIZE: u64 = 16 << 20;
const SNAPSHOTS: usize = 20;
/// A time longer than the interval of status lines, with which the agent writes delayed log lines.
const LATER: Duration = Duration::from_secs(40);

/// A VM with two mounted volumes. Dropped in this order.
struct Machine {
    world: World,
    guest: Guest,
    disks: Scratch,
}

impl Machine {
    fn boot(words: &str) -> Self {
        let disks = Scratch::new();
        let mut extra = Vec::new();
        for (name, _) in VOLUMES {
            let path = disks.0.join(name);
            let file = File::create(&path).expect("a disk");
            file.set_len(SIZE).expect("its size");
            let mut make = Command::new("mke2fs");
            let made = make.args(["-q", "-t", "ext4", "-L", name]).arg(&path).status();
            assert!(made.expect("mke2fs").success());
            let drive = format!("file={},if=none,id={name},format=raw", path.display());
            let device = format!("virtio-blk-pci,drive={name}");
            extra.extend(["-drive", &drive, "-device", &device].map(str::to_owned));
        }
        let spec = Spec { words: words.to_owned(), extra, ..Spec::default() };
        let mut world = World::of("lxd", &spec, &[]);
        let mut guest = if words.is_empty() { world.shell() } else { world.vm.guest() };
        for (name, device) in VOLUMES {
            guest.ok(&format!("mkdir /{name} && mount -t ext4 {device} /{name}"));
        }
        Self { world, guest, disks }
    }

    /// Starts a write that blocks while the volume is frozen; [`Self::written`] waits for its end.
    fn write_later(&mut self) {
        let write = "(echo x >/data/waits; cut -d. -f1 /proc/uptime >/run/written)";
        self.guest.ok(&format!("rm -f /run/written; {write} >/dev/null 2>&1 &"));
    }

    fn written(&mut self, limit: Duration) -> u64 {
        let guest = &mut self.guest;
        let (text, _) = wait("the write", patient(limit), || {
            Some(guest.sh("cat /run/written 2>/dev/null").1).filter(|text| text.ends_with('\n'))
        });
        text.trim().parse().expect("seconds")
    }

    fn uptime(&mut self) -> u64 {
        self.guest.ok("cut -d. -f1 /proc/uptime").trim().parse().expect("seconds")
    }

    fn by_host(&self, command: &str) -> Result<String, String> {
        self.world.host.exec(&command.split(' ').collect::<Vec<_>>())
    }
}

const FROZEN: &str = "frozen for 10 s: /data /journal\n";

#[test]
fn thaws_in_time_whatever_is_killed() {
    let mut vm = Machine::boot("");
    // The volumes were frozen by a command of the agent, which is killed.
    let begun = vm.uptime();
    assert_eq!(vm.by_host("mote-agent freeze --for 10s").as_deref(), Ok(FROZEN));
    vm.write_later();
    let status = vm.guest.ok("mote-agent freeze --status");
    assert!(status.starts_with("frozen for another ") && status.ends_with(" s\n"), "{status}");
    let frozen = "mote-agent: already frozen\n".to_owned();
    assert_eq!(vm.guest.sh("mote-agent freeze 2>&1"), (1, frozen));
    vm.guest.ok("kill -9 $(cat /run/agent.pid)");
    assert_eq!(vm.guest.sh("cat /run/written").0, 1, "it is not frozen");
    let took = vm.written(Duration::from_secs(20)) - begun;
    assert!(took >= 9, "{took}");
    let late = "mote-agent: no longer frozen: the time limit expired\n".to_owned();
    assert_eq!(vm.guest.sh("mote-agent thaw 2>&1"), (1, late));
    vm.guest.ok("dmesg | grep -q 'mote-agent: file systems thawed: the time limit expired'");

    // The host's daemon is killed.
    vm.guest.ok("start-stop-daemon -S -b -x /run/agent.start");
    wait("another agent", MOTE_BOOT, || vm.by_host("/bin/busybox true").ok());
    assert_eq!(vm.by_host("mote-agent freeze --for 10s").as_deref(), Ok(FROZEN));
    vm.write_later();
    vm.world.host.kill();
    vm.written(Duration::from_secs(20));
    vm.world.host.start();
    vm.world.host.connected(MOTE_BOOT);

    // The caller of `freeze` is killed while a hook runs, so it cannot make a snapshot.
    let hook = "mkdir -p /etc/mote/freeze.d; f=/etc/mote/freeze.d/slow; printf '#!/bin/sh\\necho $1 >>/run/hook\\nsleep 2\\n' >$f; chmod 755 $f";
    vm.guest.ok(hook);
    vm.guest.ok("mote-agent freeze --for 60s >/run/caller 2>&1 & until [ -s /run/hook ]; do sleep 0.1; done; kill -9 $!");
    until("the hook's end", patient(Duration::from_secs(20)), || {
        vm.guest.sh("cat /run/hook").1 == "freeze\nthaw\n"
    });
    until("the guard's end", patient(Duration::from_secs(20)), || {
        vm.guest.ok("mote-agent freeze --status") == "not frozen\n"
    });
    vm.write_later();
    vm.written(Duration::from_secs(5));
    // A caller that cannot read that everything is frozen takes no snapshot.
    let unread = "rm /etc/mote/freeze.d/slow; mote-agent freeze 2>&1 >/dev/full";
    exits(vm.guest.sh(unread), 1, &["No space left"]);
    assert_eq!(vm.guest.ok("mote-agent freeze --status"), "not frozen\n");
    vm.world.power_off(&mut vm.guest);
}

#[test]
fn another_programs_freeze_is_skipped_and_its_thaw_reported() {
    let mut vm = Machine::boot("");
    vm.guest.ok("fsfreeze --freeze /data");
    assert_eq!(vm.guest.ok("mote-agent freeze"), "frozen for 60 s: /journal\nskipped: /data\n");
    vm.guest.ok("mote-agent thaw");
    assert_eq!(vm.guest.sh("fsfreeze --unfreeze /data").0, 0);
    vm.guest.ok("mote-agent freeze; fsfreeze --unfreeze /data");
    exits(vm.guest.sh("mote-agent thaw 2>&1"), 1, &["thawed by another program"]);
    vm.guest.ok("mote-agent trim");
    vm.world.power_off(&mut vm.guest);
}

#[test]
fn commands_and_status_work_while_the_log_is_frozen() {
    let mut vm = Machine::boot("mote.agent=later mote.args=--remember,/data/kept");
    vm.guest.ok("sed -i s,/run/agent.log,/data/agent.log, /run/agent.start; start-stop-daemon -S -b -x /run/agent.start");
    vm.world.host.connected(MOTE_BOOT);
    let _frozen = vm.by_host("mote-agent freeze --for 50s").expect("all is frozen");
    for _ in 0..3 {
        assert_eq!(vm.by_host("/bin/busybox echo there").as_deref(), Ok("there\n"));
    }
    assert!(vm.guest.ok("mote-agent status").contains("state: CONNECTED\n"));
    assert_eq!(vm.guest.ok("mote-agent get user.foo"), "bar\n");
    assert_eq!(vm.guest.ok("grep -c 'argv=.*there' /data/agent.log || true"), "0\n");
    // The host calls from a new address, which cannot be stored now.
    let kept = vm.guest.ok("md5sum </data/kept/agent.conf");
    vm.world.host.restart();
    vm.world.host.connected(MOTE_BOOT);
    assert_eq!(vm.guest.ok("md5sum </data/kept/agent.conf"), kept);
    assert_eq!(vm.by_host("mote-agent thaw").as_deref(), Ok("thawed\n"));
    let guest = &mut vm.guest;
    until("the log", patient(LATER), || {
        guest.sh("grep -c 'argv=.*there' /data/agent.log").1 == "3\n"
    });
    assert_eq!(guest.sh("grep -c lost /data/agent.log").1, "0\n");
    // The agent uses the new address, but could not store it. Then the host gets another address.
    vm.world.host.restart();
    until("the address", patient(LATER), || guest.ok("md5sum </data/kept/agent.conf") != kept);
    vm.world.power_off(&mut vm.guest);
}

/// Checks a volume's copy and replays its journal, as after a power cut. Returns the number in the
/// copy's file `number`.
fn copied(disks: &Path, name: &str) -> u64 {
    let copy: PathBuf = disks.join(format!("{name}.copy"));
    // Nothing writes to the copy, so the check must find no errors.
    let checked = Command::new("e2fsck").args(["-f", "-y"]).arg(&copy).output().expect("e2fsck");
    assert!(checked.status.code().is_some_and(|code| code <= 1), "{checked:?}");
    let read = Command::new("debugfs").args(["-R", "cat /number"]).arg(&copy).output();
    let text = String::from_utf8(read.expect("debugfs").stdout).expect("a number");
    text.trim().parse().unwrap_or(0)
}

/// Copies both volumes in sequence. Counts the pairs in which `data` is newer than `journal`.
fn bad_snapshots(vm: &Machine, is_frozen: bool) -> usize {
    let disks = &vm.disks.0;
    let mut bad = 0;
    for _ in 0..SNAPSHOTS {
        if is_frozen {
            let _frozen = vm.by_host("mote-agent freeze --for 60s").expect("all is frozen");
        }
        for (name, _) in VOLUMES {
            vm.world.vm.standing(|| {
                fs::copy(disks.join(name), disks.join(format!("{name}.copy"))).expect("a copy")
            });
            // The time that a server needs between two volumes.
            thread::sleep(Duration::from_millis(300));
        }
        if is_frozen {
            assert_eq!(vm.by_host("mote-agent thaw").as_deref(), Ok("thawed\n"));
        }
        let [journal, data] = VOLUMES.map(|(name, _)| copied(disks, name));
        bad += usize::from(data > journal);
        assert!(journal > 0, "nothing is written");
    }
    bad
}

#[test]
fn frozen_volumes_give_consistent_snapshots() {
    let mut vm = Machine::boot("");
    // Writes each number to the volume `journal` before `data`, as a database does.
    let write = "printf %08d $n | dd of=/$v/number conv=notrunc,fsync 2>/dev/null";
    vm.guest.ok(&format!(
        "(n=0; while :; do n=$((n+1)); for v in journal data; do {write}; done; done) >/dev/null 2>&1 &"
    ));
    until("numbers", patient(Duration::from_secs(20)), || {
        vm.guest.ok("cat /data/number 2>/dev/null || true").as_str() > "00000003"
    });
    let without = bad_snapshots(&vm, false);
    let with = bad_snapshots(&vm, true);
    println!("bad snapshots: {without} of {SNAPSHOTS} without, {with} of {SNAPSHOTS} with");
    assert_eq!(with, 0);
    assert!(without > SNAPSHOTS / 2, "{without}");
    drop(vm.world.host.run(&["exec", NAME, "--", "killall", "-9", "sh"]));
    vm.world.vm.cut();
}
