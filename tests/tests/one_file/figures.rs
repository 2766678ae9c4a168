//! Cost of a one-file image, compared with the same image with a Go agent and busybox. Each run
//! writes a row of docs/results/boots.md. `MOTE_WRITE_DOCS` also writes the table of three images,
//! which boots each with less and less memory.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use mote_tests::pages::file::{between, committed, write};
use mote_tests::pages::ways::{Row, record};
use mote_tests::proc::{kilobytes, started};
use mote_tests::{BOOT, Column, Spec, wait, world};

use crate::{World, image};

const PAGE: &str = "results/boots.md";
const BEGIN: &str = "<!-- one-file:begin -->\n";
const END: &str = "<!-- one-file:end -->";
/// Polling interval; each poll costs time of the emulated CPU.
const LOOK: Duration = Duration::from_millis(100);
/// Search for the smallest memory of a VM, MiB: from, to, precision.
const MEMORY: (u32, u32, u32) = (32, 160, 4);
const ROOMY: u32 = 256;
const FIRST: Duration = Duration::from_secs(180);

struct Subject {
    title: &'static str,
    image: &'static str,
    column: Column,
    words: &'static str,
    command: &'static [&'static str],
}

const SUBJECTS: [Subject; 3] = [
    Subject {
        title: "mote as `/init`",
        image: "plain",
        column: Column::MoteLxd,
        words: "",
        command: &["/init", "--version"],
    },
    Subject {
        title: "mote as `/init`, and busybox",
        image: "busybox",
        column: Column::MoteLxd,
        words: "",
        command: &["/bin/busybox", "true"],
    },
    Subject {
        title: "busybox as init, and incus-agent 6.0.4",
        image: "go",
        column: Column::IncusAgent,
        words: "mote.start=incus-agent",
        command: &["/bin/busybox", "true"],
    },
];

/// Starts a VM. Returns it with the time of its power-on.
fn switch_on(column: Column, spec: &Spec) -> (World, Instant) {
    let world = world::World::boot(column, spec, &[]);
    let begun = world.begun;
    (World(world), begun)
}

impl Subject {
    /// Returns the time from power-on to the result of the host's first command, and QEMU's CPU
    /// time; `None` if this memory is too small.
    fn boot(&self, memory: u32) -> Option<[Duration; 2]> {
        let (image, port) = (image(self.image), self.column.port());
        let spec = Spec { image, port, words: self.words.into(), memory, ..Spec::default() };
        let (mut world, begun) = switch_on(self.column, &spec);
        loop {
            if world.exec(self.command).is_ok() {
                return Some([begun.elapsed(), world.0.vm.busy()]);
            }
            // With too little memory the kernel panics or kills processes.
            let is_short = world.0.vm.console().contains("Out of memory");
            if is_short || world.0.vm.has_ended() || begun.elapsed() > FIRST {
                return None;
            }
            std::thread::sleep(LOOK);
        }
    }

    fn smallest(&self) -> u32 {
        let (mut low, mut high, step) = MEMORY;
        while high - low > step {
            let middle = (low + high) / 2 / step * step;
            let took = self.boot(middle);
            println!("{} with {middle} MiB: {took:?}", self.title);
            if took.is_some() { high = middle } else { low = middle }
        }
        high
    }

    fn line(&self, times: &[[Duration; 2]]) -> String {
        let bytes = std::fs::metadata(image(self.image).join("initrd")).expect("its initrd").len();
        let least = |which: usize| {
            times.iter().map(|both| both[which].as_secs_f64()).fold(f64::MAX, f64::min)
        };
        let smallest = self.smallest();
        let (title, took, busy, kib) = (self.title, least(0), least(1), bytes / 1024);
        format!("| {title} | {took:.1} | {busy:.1} | {smallest} | {kib} |\n")
    }
}

#[test]
fn writes_the_table_of_images_on_request() {
    if std::env::var_os("MOTE_WRITE_DOCS").is_none() {
        let page = committed(PAGE);
        let table = page.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
        let table = table.expect("the table's marks").0;
        assert!(SUBJECTS.iter().all(|subject| table.contains(subject.title)), "{table}");
        return;
    }
    let mut table =
        "| image | power-on to the first `exec`'s result, s | QEMU on the CPU until then, s | smallest memory, MiB | \
         initramfs, KiB |\n| --- | --: | --: | --: | --: |\n"
            .to_owned();
    // Alternates between the images, so that the machine's load affects all of them.
    let round = || SUBJECTS.map(|subject| subject.boot(ROOMY).expect("it boots"));
    let rounds = [round(), round(), round()];
    println!("{rounds:?}");
    for (index, subject) in SUBJECTS.iter().enumerate() {
        let line = subject.line(&rounds.map(|round| round[index]));
        print!("{line}");
        let _fits = table.write_str(&line);
    }
    let page = committed(PAGE);
    write(PAGE, &between(&page, [BEGIN, END], &table));
}

#[test]
fn writes_its_row_of_the_table_of_ways() {
    let spec = Spec { image: image("busybox"), ..Spec::default() };
    let (mut world, begun) = switch_on(Column::MoteLxd, &spec);
    world.0.connected(BOOT);
    let power_on = begun.elapsed();
    let member = |name: &str| {
        let text = world.sh("cat /run/mote/status");
        let status: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        status[name].as_u64().unwrap_or_else(|| panic!("{name}: {text}"))
    };
    let pid = member("pid");
    wait("its status", BOOT, || {
        world.sh("cat /run/mote/status").contains("\"CONNECTED\"").then_some(())
    });
    let connected = Duration::from_millis(member("since_uptime_ms"));
    let start = started(&world.sh(&format!("cat /proc/{pid}/stat")));
    let agent_start = connected.saturating_sub(start);
    let memory = |pid: u64| {
        let text = world.sh(&format!("cat /proc/{pid}/smaps_rollup"));
        kilobytes(&text, "Pss:").expect("its memory")
    };
    let (pss, first) = (memory(pid), memory(1));
    println!("PSS of the agent {pss} kB, of process 1 {first} kB");
    assert!(first < 700, "process 1 has {first} kB");
    let kernel = world.sh("uname -r");
    world.0.vm.power_button();
    let _console = world.ends();
    let bytes = std::fs::metadata(image("mote-agent")).expect("the one file").len();
    let booted = format!("Linux {}, QEMU {}, 128 MiB", kernel.trim(), mote_tests::vm::PC);
    record(&Row { way: "one-file", booted, agent_start, power_on, bytes, pss, clean_stop: true });
}
