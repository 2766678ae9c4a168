//! A paused VM, and two clones of one state.

use mote_tests::prelude::*;

/// Limit for the clock's correction after a pause.
const RIGHT: Duration = Duration::from_secs(6);
/// Tolerance of a clock that was set from the RTC.
const OFF: f64 = 0.5;
const NIC: Option<&str> = Some("00:16:3e:aa:bb:cc");
/// Records random bytes ten times a second, with the time since boot.
const SAMPLES: &str = "while :; do echo $(cut -d' ' -f1 /proc/uptime) $(od -An -N8 -tx8 /dev/urandom); usleep 100000; done";
/// Returns how many seconds the guest's clock is behind the host's.
fn behind(guest: &mut Guest) -> f64 {
    let now = || SystemTime::UNIX_EPOCH.elapsed().expect("a clock").as_secs_f64();
    let before = now();
    let text = guest.ok("cat /proc/uptime >/dev/null; adjtimex | grep -E 'time.tv_(sec|usec)'");
    let after = now();
    let number = |name: &str| -> f64 {
        let line = text.lines().find(|line| line.contains(name)).unwrap_or_default();
        line.split_whitespace().last().and_then(|number| number.parse().ok()).expect("a time")
    };
    let guest = number("tv_sec") + number("tv_usec") / 1e6;
    // An error that is shorter than the query cannot be measured.
    if guest < before { before - guest } else { (after - guest).min(0.0) }
}

#[track_caller]
fn is_right(behind: f64) {
    assert!(behind.abs() < OFF + 0.1, "{behind}");
}

fn log(guest: &mut Guest) -> String {
    guest.ok("cat /run/agent.log")
}

#[test]
fn corrects_the_clock_after_a_pause_unless_another_program_sets_it() {
    let (world, mut guest) = World::with_shell("lxd", &Spec { nic: NIC, ..Spec::default() }, &[]);
    guest.ok("modprobe virtio_net; (mote-agent events >/tmp/events 2>&1 &)");
    // By then, the agent has compared the clock with the RTC.
    thread::sleep(RIGHT);
    world.vm.pause();
    thread::sleep(Duration::from_secs(25));
    let resumed = UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    world.vm.go_on();
    // The first command after a resume starts only once the clock is correct.
    let seen: f64 = world.host.exec(&["date", "+%s"]).unwrap().trim().parse().unwrap();
    assert!(seen > resumed - 1.0 - OFF, "{} s behind", resumed - seen);
    is_right(behind(&mut guest));
    assert!(log(&mut guest).contains("VM resumed (paused)"));
    until("the event", patient(RIGHT), || {
        guest.ok("cat /tmp/events").contains("\"kind\":\"paused\",\"generation\":0")
    });

    guest.ok("echo 'while :; do sleep 1; done' >/tmp/script");
    guest.ok("(echo '#!/bin/sh'; cat /tmp/script) >/tmp/chronyd; chmod 755 /tmp/chronyd");
    guest.ok("start-stop-daemon -S -b -x /tmp/chronyd; sleep 6");
    world.vm.pause();
    thread::sleep(Duration::from_secs(10));
    world.vm.go_on();
    until("the log", patient(RIGHT), || {
        log(&mut guest).contains("clock stepped by 0 ms (another program sets it)")
    });
    assert!(behind(&mut guest) > 8.0, "it was set");
    guest.ok("killall chronyd");
    guest.ok("mote-agent sync-time");
    is_right(behind(&mut guest));
    without_random_numbers(&world, &mut guest);
    world.power_off(&mut guest);
}

/// The clock is corrected even if the hardware RNG never answers.
fn without_random_numbers(world: &World, guest: &mut Guest) {
    // Opening a FIFO blocks forever.
    guest.ok("rm -f /dev/hwrng; mkfifo /dev/hwrng; sleep 6");
    world.vm.pause();
    thread::sleep(Duration::from_secs(10));
    world.vm.go_on();
    until("the log", patient(Duration::from_secs(15)), || {
        log(guest).contains("RNG not fully reseeded; clock stepped by ")
    });
    is_right(behind(guest));
}

struct Copy {
    samples: Vec<String>,
    behind: f64,
    log: String,
    more: String,
}

/// Restores one state twice, in sequence. The vsock device is plugged in later.
fn copies(spec: &Spec, has_agent: bool) -> [Copy; 2] {
    let words =
        if has_agent { spec.words.clone() } else { format!("{} mote.agent=no", spec.words) };
    let spec = Spec { nic: NIC, late: vec![Late::Vsock], words, ..spec.clone() };
    let mut world = World::of("lxd", &spec, &[]);
    let mut guest = if has_agent {
        world.vm.plug_late(Late::Vsock);
        world.shell()
    } else {
        world.vm.guest()
    };
    guest.ok("modprobe virtio_net; modprobe virtio_rng; mkdir -p /etc/mote/restored.d");
    guest.ok("(echo '#!/bin/sh'; echo 'echo hook $1 $(od -An -t u8 /run/mote/generation) >/tmp/hook') >/etc/mote/restored.d/a");
    guest.ok("chmod 755 /etc/mote /etc/mote/restored.d /etc/mote/restored.d/a");
    if has_agent {
        guest.ok("(mote-agent events >/tmp/events 2>&1 &)");
    }
    guest.ok(&format!("echo \"{}\" >/tmp/sample", SAMPLES.replace('$', "\\$")));
    // The kernel's reseed interval grows with the uptime, up to a minute.
    thread::sleep(Duration::from_secs(20));
    guest.ok("(sh /tmp/sample >/tmp/samples 2>/dev/null &); sleep 2");
    if has_agent {
        world.vm.unplug("vsock");
    }
    let count: usize = guest.ok("wc -l </tmp/samples").trim().parse().expect("lines");
    let state = world.scratch.0.join("state");
    world.vm.save(&state);
    [0, 1].map(|_| {
        world.host.kill();
        world.vm.end();
        let incoming = ["-incoming".into(), format!("exec:cat {}", state.display())];
        let extra = [&spec.extra[..], &incoming].concat();
        let begun = Spec { extra, ..spec.clone() };
        world.vm = Vm::boot(&world.scratch.0, &begun, &world.host.share, world::port("lxd"));
        world.host.start();
        let mut guest = world.vm.guest_again();
        if has_agent {
            thread::sleep(Duration::from_millis(1500));
            world.vm.plug_late(Late::Vsock);
            world.host.connected(MOTE_BOOT);
        }
        thread::sleep(patient(Duration::from_secs(4)));
        let samples = guest.ok(&format!("tail -n +{} /tmp/samples", count + 1));
        Copy {
            samples: samples.lines().map(str::to_owned).collect(),
            behind: behind(&mut guest),
            log: guest.sh("cat /run/agent.log; test -e /sys/bus/acpi/devices/QEMUVGID:00/driver -o -e /sys/bus/platform/devices/QEMUVGID:00/driver && echo has generation").1,
            more: guest.sh("cat /tmp/hook /tmp/events; od -An -t u8 /run/mote/generation").1,
        }
    })
}

/// Counts the random samples that both clones read. Without a reseed, both kernels generate the
/// same stream, but the scheduler decides which process gets which part.
fn same(copies: &[Copy; 2]) -> usize {
    let bytes = |copy: &Copy| -> Vec<String> {
        copy.samples.iter().filter_map(|line| line.split(' ').nth(1)).map(str::to_owned).collect()
    };
    let [one, other] = [bytes(&copies[0]), bytes(&copies[1])];
    one.iter().filter(|sample| other.contains(sample)).count()
}

#[test]
fn clones_have_different_random_numbers_and_detect_it() {
    let true = vm::is_pc() else { return skipped("a machine with a generation id") };
    // LXD and Incus configure the device like this. Each QEMU process gets another id.
    let generation = ["-device".to_owned(), "vmgenid,guid=auto".into()];
    let plain = Spec { extra: generation.to_vec(), ..Spec::default() };
    let without = copies(&plain, false);
    let (all, shared) = (without[0].samples.len(), same(&without));
    let is_told = without[0].log.contains("has generation");
    println!(
        "without an agent: {shared} of {all} samples are the same, told by the kernel: {is_told}"
    );
    assert!(!is_told || shared < all / 2, "{shared} of {all}");
    if !is_told && shared <= all / 2 {
        // The kernel also reseeds at intervals, and a slow run gives the kernel time for that.
        skipped("a kernel whose clones share random numbers");
    }

    let rng = ["-device".to_owned(), "virtio-rng-pci".into()];
    for hardware in [&[][..], &rng] {
        let with = copies(&Spec { extra: [&generation, hardware].concat(), ..plain.clone() }, true);
        let (all, shared) = (with[0].samples.len(), same(&with));
        println!("with mote, {hardware:?}: {shared} of {all} samples are the same");
        // Only samples from before the reseed are shared.
        assert!(shared < 15, "{shared} of {all}");
        let kind = if is_told { "restored" } else { "unknown" };
        for copy in &with {
            is_right(copy.behind);
            contains(&copy.log, &[&format!("VM resumed ({kind}): clock stepped by ")]);
            let event = format!("\"kind\":\"{kind}\",\"generation\":1");
            contains(&copy.more, &[&format!("hook {kind}"), &event]);
        }
    }
}

// A guest that suspends to memory: timers ignore that time, and connections are lost.

const INTERVAL: u64 = 20_000;
/// Duration of the suspend, seconds: longer than [`INTERVAL`], so that a line is due at wake-up,
/// and longer than `mote-host exec` waits for a silent guest.
const ASLEEP: u64 = 25;

const ALARM: &str = "/sys/class/rtc/rtc0/wakealarm";

/// Returns whether the guest has a clock that can wake it.
fn wakes(guest: &mut Guest) -> bool {
    let has_alarm = guest.sh(&format!("test -e {ALARM}")).0 == 0;
    if !has_alarm {
        skipped("a hardware's clock that wakes the guest");
    }
    has_alarm
}

fn suspend(guest: &mut Guest) {
    guest.ok(&format!("echo 0 >{ALARM}; echo +{ASLEEP} >{ALARM}"));
    let begun = Instant::now();
    guest.send("echo mem >/sys/power/state");
    exits(guest.reply(Duration::from_secs(120)), 0, &[]);
    assert!(begun.elapsed().as_secs() >= ASLEEP - 2, "it did not sleep: {:?}", begun.elapsed());
}

#[test]
fn writes_the_next_line_within_a_second_after_a_suspend() {
    // With a socket as its port, the host reads each line.
    let words = format!("mote.args=--interval-connected,{INTERVAL}");
    let (world, mut guest) =
        World::with_shell("lxd", &Spec { socket: true, words, ..Spec::default() }, &[]);
    let true = wakes(&mut guest) else { return };
    let lines = |world: &World| world.host.state()["lines"].as_array().map_or(0, Vec::len);
    let next = |world: &World, what: &str| {
        let before = lines(world);
        let limit = Duration::from_millis(2 * INTERVAL);
        until(what, limit, || lines(world) > before)
    };
    next(&world, "CONNECTED");
    next(&world, "a line");
    let before = lines(&world);
    suspend(&mut guest);
    let woke = Instant::now();
    until("a line", Duration::from_millis(2 * INTERVAL), || lines(&world) > before);
    let late = woke.elapsed();
    // If timers excluded the suspend, the line would come up to an interval later.
    assert!(late < Duration::from_millis(INTERVAL * 3 / 4), "{late:?}");
    // The overdue timer must not fire continuously.
    let mut used = || {
        let ticks = guest.ok("cut -d' ' -f14,15 /proc/$(cat /run/agent.pid)/stat");
        ticks.split_whitespace().map(|part| part.parse::<u64>().expect("ticks")).sum::<u64>()
    };
    let before = used();
    thread::sleep(Duration::from_secs(3));
    let used = used() - before;
    assert!(used < 30, "{used} ticks of 300");
    world.power_off(&mut guest);
}

#[test]
fn ends_a_command_with_a_reason_after_a_suspend() {
    let (world, mut guest) = World::with_shell("lxd", &Spec::default(), &[]);
    let true = wakes(&mut guest) else { return };
    let script = "echo $$; trap '' HUP TERM; while :; do sleep 1; done";
    let mut command = world.host.exec_with(&["-T", "-n"], &["sh", "-c", script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut client = bounded(&mut command).expect("mote-host");
    let mut pid = String::new();
    let stdout = client.stdout.as_mut().expect("its output");
    BufReader::new(stdout).read_line(&mut pid).expect("a line");
    // vhost-device-vsock stops serving if a client writes or closes while the guest is suspended,
    // so no request of mote-host's may be in flight by then.
    thread::sleep(patient(Duration::from_secs(3)));
    suspend(&mut guest);
    let (status, _) =
        wait("the client's end", MOTE_BOOT, || client.try_wait().expect("its status"));
    let mut said = String::new();
    client.stderr.take().expect("its errors").read_to_string(&mut said).expect("text");
    // The client sees that the operation has ended, or that it is unknown.
    let lost = "the guest has lost its connections, as after a suspend";
    assert!(matches!(status.code(), Some(129 | 137)) && said.contains(lost), "{status}: {said}");
    guest.ok(&format!("! kill -0 {}", pid.trim()));
    // The vsock device still works.
    assert_eq!(world.host.exec(&["echo", "again"]).as_deref(), Ok("again\n"));
    assert_eq!(guest.ok("mote-agent get user.foo"), "bar\n");
    assert_eq!(guest.ok("grep -c 'took too long' /run/agent.log || :"), "0\n");
    world.power_off(&mut guest);
}
