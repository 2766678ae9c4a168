//! Shares to mount, from arbitrary bytes. What must hold: no panic; no target leads out of the root;
//! nothing has a NUL in it; `mountinfo` read back is what was written.

use mote_core::flavour::Flavour;
use mote_core::hostapi::mount::{Wanted, entries, wanted};
use mote_core::json::Value;

fn good_target(target: &str) {
    assert!(!target.is_empty() && !target.starts_with('/') && !target.contains('\0'));
    assert!(target.split('/').all(|part| part != ".."));
}

/// As the kernel escapes a word.
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

/// One input.
pub fn run(data: &[u8]) {
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
        // An empty word is no line.
        if let Some(entry) = entries(line.as_bytes()).next() {
            assert_eq!((entry.point.as_str(), entry.source.as_str()), (word, "a b"));
        } else {
            assert!(word.is_empty());
        }
    }
}
