//! Kernel files and `/etc`: every parser of `proc`, `netlink`, `resources`, `restore` and `freeze`,
//! the clock, and the reports made from them. Invariants: each result becomes JSON that serde_json
//! reads with numbers that Go's `int64` can hold, or the path of the event.

use mote_core::first_boot::credentials;
use mote_core::first_boot::nic::{self, Search, Wanted};
use mote_core::freeze::{self, filesystems};
use mote_core::hotplug::is_made_up;
use mote_core::hotplug::nics::Plugged;
use mote_core::hotplug::resources::{Added, added};
use mote_core::json::Writer;
use mote_core::netlink::{self, Reply};
use mote_core::ready_when;
use mote_core::report::metrics::{self, Filesystems, Section, Totals};
use mote_core::report::proc::mounts::{Mount, Space};
use mote_core::report::proc::stat::{Cpu, Disk, Interface};
use mote_core::report::proc::{Memory, full_name, keyed, number, variable};
use mote_core::report::state::{self, State, System};
use mote_core::resume::clock::{Difference, Step, is_setter, step};
use mote_core::resume::is_fork;

use crate::prelude::*;

fn lines(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    data.split(|byte| *byte == b'\n')
}

fn section(json: &mut Writer<'_>, flavour: Flavour, data: &[u8], section: Section) -> usize {
    metrics::open(json, flavour, section);
    let (mut count, mut filesystems) = (0, Filesystems::new(flavour));
    for line in lines(data) {
        count += usize::from(
            match section {
                Section::Cpu => Cpu::parse(line).map(|cpu| metrics::cpu(json, flavour, &cpu)),
                Section::Disk => Disk::parse(line).map(|disk| metrics::disk(json, flavour, &disk)),
                Section::Filesystem => Mount::parse(line)
                    .and_then(|mount| filesystems.wanted(&mount))
                    .map(|(device, point)| {
                        let value = number(line).unwrap_or(line.len() as u64);
                        let space = Space {
                            block: value,
                            blocks: value,
                            free: value,
                            available: value,
                            magic: value as u32,
                        };
                        metrics::filesystem(json, flavour, &device, &point, &space);
                    }),
                Section::Network => Interface::parse(line)
                    .map(|interface| metrics::network(json, flavour, &interface)),
            }
            .is_some(),
        );
    }
    metrics::close(json, flavour);
    count
}

fn check_metrics(flavour: Flavour, data: &[u8]) {
    let mut out = String::new();
    let mut json = Writer::new(&mut out);
    json.begin_object();
    let sections = [Section::Cpu, Section::Disk, Section::Filesystem, Section::Network];
    let counts = sections.map(|which| section(&mut json, flavour, data, which));
    let oom = lines(data).find_map(|line| keyed(line, "oom_kill")).unwrap_or(0);
    metrics::memory(&mut json, flavour, Memory(data), oom);
    metrics::totals(&mut json, flavour, &Totals { cpus: oom, ..Totals::default() });
    json.end_object();
    json.done().unwrap();
    let value: Value = serde_json::from_str(&out).unwrap();
    for (name, count) in ["cpu_seconds_total", "disk", "filesystem", "network"].iter().zip(counts) {
        match &value[name] {
            Value::Array(list) => assert_eq!((list.len(), flavour), (count, Flavour::Incus)),
            Value::Object(map) => assert!(map.len() <= count && (count == 0) == map.is_empty()),
            other => panic!("{other}"),
        }
    }
    assert!(value["memory"].as_object().unwrap().values().all(Value::is_i64));
}

fn check_state(flavour: Flavour, data: &[u8]) {
    let name = lines(data).find_map(|line| variable(line, "NAME")).unwrap_or_default();
    let host = lines(data).find_map(|line| full_name(line, b"vm")).unwrap_or_default();
    let number = number(data).unwrap_or(7);
    let system = System { name: &name, version: data, kernel: b"", host: b"vm", full_host: host };
    let state = State {
        memory: Memory(data),
        memory_peak: number,
        swap_peak: number,
        cpu: (number != 7).then_some(number),
        processes: number,
        system,
    };
    let addresses: Vec<_> = netlink::replies(data)
        .filter_map(|reply| match reply {
            Reply::Address(address) => Some(address),
            _ => None,
        })
        .collect();
    let mut out = String::new();
    let mut json = Writer::new(&mut out);
    state::begin(&mut json, flavour, &state);
    for reply in netlink::replies(data) {
        if let Reply::Link(link) = reply {
            state::network(&mut json, &link, &addresses);
        }
    }
    state::end(&mut json);
    json.done().unwrap();
    assert!(!out.contains('\n'), "the reader stops at the first newline");
    let value: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(value["pid"], 1);
    assert!(value["processes"].as_i64().unwrap() > 0);
    assert!(value["cpu"]["usage"].is_i64() && value["memory"]["usage"].is_i64());
}

/// Checks that undoing a group's renames restores all names.
fn check_nics(data: &[u8]) {
    let wanted: Vec<_> = lines(data).filter_map(|line| Wanted::parse(line).ok()).collect();
    let mut search = Search::new(&wanted);
    for reply in netlink::replies(data) {
        if let Reply::Link(link) = reply {
            search.see(&link);
        }
    }
    for group in search.groups() {
        let steps = nic::steps(&group);
        assert!(steps.len() >= 2 * group.len() && steps.len() <= 5 * group.len());
    }
}

/// Checks that an event leads to its own path only, without extension.
fn check_events(data: &[u8]) {
    let _told = is_made_up(data);
    if Plugged::default().see(data, Uptime::default()).is_some() {
        let is_there = |word: &[u8]| data.windows(word.len()).any(|part| part == word);
        assert!(data.starts_with(b"add@") && (is_there(b"IFINDEX=") || is_there(b"MODALIAS=")));
    }
    if let Some((path, one)) = added(data).and_then(|path| Some((path, Added::of_path(path)?))) {
        assert!(data.starts_with(&[b"add@/devices/system/", path].concat()));
        let (Added::Cpu(number) | Added::Memory(number)) = one;
        let digits = path.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let digits = std::str::from_utf8(&path[path.len() - digits..]).unwrap();
        assert_eq!(digits.parse(), Ok(number));
        assert!(!path.windows(2).any(|part| part == b".."));
    }
}

/// Checks that each frozen file system is listed once, and that times are limited.
fn check_mounts(data: &[u8]) {
    let found = filesystems::mounted(data);
    assert!(found.len() <= lines(data).count());
    for system in found {
        let words = lines(data).filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
        assert!(words.into_iter().any(|word| word == system.point));
    }
    let length = std::str::from_utf8(data).ok().and_then(freeze::length);
    assert!(length.is_none_or(|length| length <= freeze::LONGEST && length.as_secs() > 0));
    if freeze::is_hook(data) {
        assert!(!data.ends_with(b"~"));
    }
}

/// Checks that only the kernel reports a clone, and that no clock is set back without a request.
fn check_restore(data: &[u8]) {
    assert!(!is_fork(data) || (data[0].is_ascii_digit() && data[1] == b','));
    assert!(!is_setter(data) || data.len() <= 16);
    let mut difference = Difference::default();
    for pair in data.as_chunks::<16>().0 {
        let [hardware, wall] =
            [0, 8].map(|at| i64::from_ne_bytes(pair[at..at + 8].try_into().unwrap()));
        difference.look(hardware, [wall; 2]);
        if let Some(cause) = difference.cause()
            && let Step::By(by) = step(hardware, cause)
        {
            assert!(by > 0);
        }
    }
}

/// Checks that each credential found is present in the input.
fn check_credentials(data: &[u8]) {
    for name in [credentials::HOSTNAME, credentials::KEYS] {
        if let Some(found) = credentials::find(data, name) {
            let said = [b":", name.as_bytes(), b"="].concat();
            assert!(data.windows(said.len()).any(|part| part == said));
            assert!(found.is_err() || found.unwrap().len() <= credentials::LONGEST);
        }
        for kind in ["", ".binary"] {
            let head = ["\x0b\x05\0\0\x01io.systemd.credential", kind, ":", name, "="].concat();
            let found =
                credentials::find(&[head.as_bytes(), data, &[0, 0]].concat(), name).unwrap();
            let value = data.split(|byte| *byte == 0).next().unwrap();
            if kind.is_empty() && value.len() <= credentials::LONGEST {
                assert_eq!(found.unwrap(), value);
            } else {
                assert!(found.is_err() || found.unwrap().len() * 4 / 3 <= value.len());
            }
        }
    }
    assert!(credentials::host_name(data).is_none_or(|name| (1..=64).contains(&name.len())));
}

pub fn run(data: &[u8]) {
    for flavour in [Flavour::Lxd, Flavour::Incus] {
        check_metrics(flavour, data);
        check_state(flavour, data);
    }
    check_nics(data);
    check_events(data);
    check_mounts(data);
    assert!(!ready_when::listens(data, 80) || data.windows(5).any(|part| part == b":0050"));
    check_restore(data);
    check_credentials(data);
}
