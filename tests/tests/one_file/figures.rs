//! Boot time and memory of one-file images, next to the same images with a Go agent and busybox.
//! `MOTE_WRITE_DOCS` writes the table of docs/results/boots.md.

use mote_tests::prelude::*;
use std::fmt::Write as _;

use mote_tests::pages::{between, committed, write};

use crate::image;

const PAGE: &str = "results/boots.md";
const BEGIN: &str = "<!-- one-file:begin -->\n";
const END: &str = "<!-- one-file:end -->";
/// Polling interval; each poll costs time of the emulated CPU.
const LOOK: Duration = Duration::from_millis(5);
/// Search for the smallest memory with which a VM boots, MiB: from, to, precision.
const MEMORY: (u32, u32, u32) = (32, 160, 4);
const ROOMY: u32 = 256;
/// Number of boots of each image. The table shows the median.
const ROUNDS: usize = 3;

struct Subject {
    title: &'static str,
    image: &'static str,
    machines: &'static [&'static str],
    flavour: &'static str,
    words: &'static str,
    command: &'static [&'static str],
}

const MOTE: Subject = Subject {
    title: "mote as `/init`",
    image: "plain",
    machines: &["pci", "microvm"],
    flavour: "lxd",
    words: "",
    command: &["/init", "--version"],
};
const WITH_BUSYBOX: Subject = Subject {
    title: "mote as `/init`, and busybox",
    image: "busybox",
    command: &["/bin/busybox", "echo", "x"],
    ..MOTE
};
/// The images to compare. The last one, of an older commit, is skipped if it was not built.
const SUBJECTS: [Subject; 5] = [
    MOTE,
    WITH_BUSYBOX,
    Subject {
        title: "busybox as init, and incus-agent 6.0.4",
        image: "incus-agent",
        flavour: "incus",
        words: "mote.time=SECONDS mote.begin=console mote.shell=console mote.start=incus-agent",
        ..WITH_BUSYBOX
    },
    Subject {
        title: "busybox as init, and lxd-agent 5.0.2",
        image: "lxd-agent",
        flavour: "lxd-5.0",
        words: "mote.time=SECONDS mote.begin=console mote.shell=console mote.start=lxd-agent",
        ..WITH_BUSYBOX
    },
    // This image has no virtio-mmio.
    Subject {
        title: "mote of an older commit as `/init`",
        image: "before",
        machines: &["pci"],
        ..MOTE
    },
];

/// The beginning of the first line of process 1.
const PROCESS_1: &str = "mote: ";

/// Seconds from power-on to the first line of process 1; from that line to the output of the host's
/// first command; and QEMU's CPU time in that second period.
type Times = [f64; 3];

impl Subject {
    /// Boots this machine with `memory` MiB; `None` if that is too little.
    fn boot(&self, machine: &str, memory: u32) -> Option<Times> {
        let scratch = Scratch::new();
        let [console, out] = ["console", "out"].map(|name| scratch.0.join(name));
        let mut run = vm::mote_host();
        run.args(["run", "--accel", "tcg", "--flavour", self.flavour, "--machine", machine]);
        let time = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
        let words = self.words.replace("SECONDS", &time.to_string());
        run.args(["--memory", &memory.to_string(), "--append", &words, "--kernel"]);
        run.arg(image(self.image).join("vmlinuz")).arg("--initrd");
        run.arg(image(self.image).join("initrd")).args(["--console", plain(&console), "--"]);
        run.args(self.command).env("TMPDIR", &scratch.0).stderr(Stdio::inherit());
        run.stdout(File::create(&out).expect("a file"));
        let mut run = Process::bounded(&mut run);
        let is_qemu = |(_, line): &(u32, String)| {
            let program = line.split('\0').next().unwrap_or_default();
            program.contains("qemu-system-") && line.contains(plain(&console))
        };
        let ((qemu, _), _) = wait("QEMU", BOOT, || proc::processes().find(is_qemu));
        let (begun, mut first) = (Instant::now(), None);
        while matches!(run.0.try_wait(), Ok(None)) {
            let busy = attempt(|| proc::ticks(qemu)).ok()?;
            let now = (begun.elapsed().as_secs_f64(), Duration::from_millis(10 * busy));
            let said = fs::read_to_string(&console).unwrap_or_default();
            if said.contains(PROCESS_1) {
                first.get_or_insert(now);
            }
            if fs::metadata(&out).is_ok_and(|about| about.len() > 0) {
                let (kernel, before) = first?;
                return Some([kernel, now.0 - kernel, (now.1 - before).as_secs_f64()]);
            }
            // With too little memory the kernel panics or kills processes.
            if said.contains("Out of memory") {
                return None;
            }
            thread::sleep(LOOK);
        }
        None
    }

    fn smallest(&self) -> u32 {
        let (mut low, mut high, step) = MEMORY;
        while high - low > step {
            let middle = (low + high) / 2 / step * step;
            let took = self.boot(self.machines[0], middle);
            println!("{} with {middle} MiB: {took:?}", self.title);
            if took.is_some() { high = middle } else { low = middle }
        }
        high
    }

    fn line(&self, times: &[Vec<Times>]) -> String {
        let bytes = fs::metadata(image(self.image).join("initrd")).expect("its initrd").len();
        let median = |machine: usize, which: usize| {
            let all = times.iter().filter_map(|machines| Some(machines.get(machine)?[which]));
            let mut all: Vec<f64> = all.collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).map_or("-".to_owned(), |time| format!("{time:.2}"))
        };
        let cells = [0, 1].map(|machine| [0, 1, 2].map(|which| median(machine, which)).join(" | "));
        let (title, cells, smallest, kib) =
            (self.title, cells.join(" | "), self.smallest(), bytes / 1024);
        format!("| {title} | {cells} | {smallest} | {kib} |\n")
    }
}

#[test]
fn writes_the_table_of_images_on_request() {
    if std::env::var_os("MOTE_WRITE_DOCS").is_none() {
        let page = committed(PAGE);
        let table = page.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
        let table = table.expect("the table's marks").0;
        assert!(SUBJECTS[..4].iter().all(|subject| table.contains(subject.title)), "{table}");
        return;
    }
    let mut table = "| image | q35: process 1, s | output, s | QEMU's CPU, s | microvm: process 1, s | output, s \
         | QEMU's CPU, s | smallest memory, MiB | initramfs, KiB |\n\
         | --- | --: | --: | --: | --: | --: | --: | --: | --: |\n"
        .to_owned();
    // Alternates between the images, so that the machine's load affects all of them.
    let subjects = || SUBJECTS.iter().filter(|subject| image(subject.image).exists());
    let boots = |subject: &Subject| -> Vec<Times> {
        let boot = |machine: &&str| subject.boot(machine, ROOMY).expect("it boots");
        subject.machines.iter().map(boot).collect()
    };
    let round = |_| subjects().map(boots).collect();
    let rounds: Vec<Vec<Vec<Times>>> = (0..ROUNDS).map(round).collect();
    println!("{rounds:?}");
    for (index, subject) in subjects().enumerate() {
        let times: Vec<_> = rounds.iter().map(|round| round[index].clone()).collect();
        let line = subject.line(&times);
        print!("{line}");
        let _fits = table.write_str(&line);
    }
    write(PAGE, &between(&committed(PAGE), [BEGIN, END], &table));
}
