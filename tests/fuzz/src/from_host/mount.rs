//! Shares to mount, generated and arbitrary. Invariants: targets stay below the root, the request
//! is mounted with its options and unmounted again, no string contains NUL, and `mountinfo` reads
//! back.

use mote_core::hostapi::mount::{Wanted, entries, wanted};
use mote_core::json::Value;

use crate::prelude::*;

fn good_target(target: &str) {
    assert!(!target.is_empty() && !target.starts_with('/') && !target.contains('\0'));
    assert!(target.split('/').all(|part| part != ".."));
}

fn escaped(word: &str) -> String {
    let mut out = String::new();
    for character in word.chars() {
        match character {
            ' ' | '\t' | '\n' | '\\' => out += &format!("\\{:03o}", u32::from(character)),
            other => out.push(other),
        }
    }
    out
}

/// Options, and the flags that they set (mount(2)) if they come last.
const OPTIONS: [(&str, Option<u32>); 9] = [
    ("ro", Some(1)),
    ("nosuid", Some(2)),
    ("nodev", Some(4)),
    ("noexec", Some(8)),
    ("noatime", Some(1 << 10)),
    ("rw", Some(0)),
    ("trans=virtio", None),
    ("dax", None),
    ("a=b", None),
];

fn made_up(mut input: Input<'_>) {
    let (flavour, bits) = (input.flavour(), input.byte());
    let (tag, path) = (input.text(), input.text());
    let chosen: Vec<_> = (0..bits / 64).map(|_| OPTIONS[usize::from(input.byte() % 9)]).collect();
    let options: Vec<&str> = chosen.iter().map(|(name, _)| *name).collect();
    let is_event = bits & 1 == 0;
    let action = if bits & 2 == 0 { "added" } else { "removed" };
    let kind = if bits & 4 == 0 { "virtiofs" } else { "9p" };
    let document = if is_event {
        serde_json::json!({"type": "device", "metadata": {
            "action": action, "name": "d", "config": {"type": "disk", "path": path},
            "mount": {"source": tag, "options": options},
        }})
    } else {
        serde_json::json!({"source": tag, "target": path, "fstype": kind, "options": options})
    };
    let text = document.to_string();
    let wanted = wanted(flavour, Value::parse(text.as_bytes()).unwrap(), |_| [7; 32]);
    let is_path = Target::parse(path).is_some();
    let is_off = is_event && action == "removed";
    let is_ignored = is_event && (flavour == Flavour::LxdOld || path.is_empty());
    match wanted {
        Ok(Wanted::Nothing) => assert!(is_ignored, "{text}"),
        Ok(Wanted::Mount { source, target, ways, over }) => {
            assert!(!is_off && !is_ignored && is_path && over == is_event, "{text}");
            assert!(source == tag || is_event && tag.is_empty());
            assert_eq!(target, path.trim_matches('/'));
            let last = ways.last().unwrap();
            assert_eq!(last.kind.name(), if is_event { "virtiofs" } else { kind });
            let both = kind == "9p" && !is_event && flavour != Flavour::Incus;
            assert_eq!(ways.len(), 1 + usize::from(both));
            let flags = chosen.iter().filter_map(|(_, flag)| *flag);
            // `rw` clears `ro`.
            let flags = flags.fold(0, |all, flag| if flag == 0 { all & !1 } else { all | flag });
            assert_eq!(last.flags, flags, "{text}");
            let data = chosen.iter().filter(|(name, flag)| {
                flag.is_none() && (last.kind.name() == "9p" || !name.starts_with("trans="))
            });
            let data: Vec<&str> = data.map(|(name, _)| *name).collect();
            assert_eq!(last.data, data.join(","));
        }
        Ok(Wanted::UnmountSource(source)) => {
            assert!(is_off && flavour == Flavour::Incus && (source == tag || tag.is_empty()));
        }
        Ok(Wanted::UnmountTarget(target)) => {
            assert!(is_off && flavour == Flavour::Lxd && target == path.trim_matches('/'));
        }
        Err(why) => {
            let is_tag = !tag.contains('\0') && (is_event || !tag.is_empty());
            assert!(!is_path || !is_tag, "{text}: {why:?}");
        }
    }
}

pub fn run(data: &[u8]) {
    if let [0, made @ ..] = data {
        return made_up(Input(made));
    }
    let document = Value::parse(data).unwrap_or(Value::NULL);
    for flavour in [Flavour::Incus, Flavour::Lxd, Flavour::LxdOld] {
        match wanted(flavour, document, |bytes| [bytes.len() as u8; 32]) {
            Ok(Wanted::Mount { source, target, ways, .. }) => {
                good_target(&target);
                assert!(!source.is_empty() && !source.contains('\0') && !ways.is_empty());
                assert!(ways.iter().all(|way| !way.data.contains('\0')));
            }
            Ok(Wanted::UnmountTarget(target)) => good_target(&target),
            Ok(Wanted::UnmountSource(_) | Wanted::Nothing) | Err(_) => {}
        }
    }
    let _lines = entries(data).count();
    if let Ok(word) = core::str::from_utf8(data) {
        let line =
            format!("1 2 0:3 / {} rw shared:1 - virtiofs {} rw\n", escaped(word), escaped("a b"));
        if let Some(entry) = entries(line.as_bytes()).next() {
            assert_eq!((entry.point.as_str(), entry.source.as_str()), (word, "a b"));
        } else {
            assert!(word.is_empty());
        }
    }
}
