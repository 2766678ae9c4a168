//! Entries and events as hosts of each flavour send them.

use super::*;

fn no_hash(_: &[u8]) -> [u8; 32] {
    [0; 32]
}

fn of(flavour: Flavour, json: &str) -> Result<Wanted, BadMount> {
    let document = Value::parse(json.as_bytes()).map_err(|_| BadMount::Shape)?;
    wanted(flavour, document, no_hash)
}

fn lxd(json: &str) -> Result<Wanted, BadMount> {
    of(Flavour::Lxd, json)
}

fn incus(json: &str) -> Result<Wanted, BadMount> {
    of(Flavour::Incus, json)
}

fn way(kind: Kind, flags: u32, data: &str) -> Way {
    Way { kind, flags, data: data.into() }
}

fn mount(source: &str, target: &str, ways: &[Way]) -> Result<Wanted, BadMount> {
    let (source, target, ways) = (source.into(), target.into(), ways.into());
    Ok(Wanted::Mount { source, target, ways, over: false })
}

#[test]
fn reads_entries_of_each_server() {
    let new = r#"{"source":"lxd_d","target":"/mnt/x","fstype":"virtiofs","options":["ro"]}"#;
    assert_eq!(lxd(new), mount("lxd_d", "mnt/x", &[way(Kind::Virtiofs, 1, "")]));
    let null = r#"{"source":"lxd_d","target":"mnt/x/","fstype":"virtiofs","options":null}"#;
    assert_eq!(lxd(null), mount("lxd_d", "mnt/x", &[way(Kind::Virtiofs, 0, "")]));
    let old = r#"{"source":"t","target":"/m","fstype":"9p","options":["trans=virtio,msize=33554432","ro"]}"#;
    let plan9 = way(Kind::Plan9, 1, "trans=virtio,msize=33554432");
    assert_eq!(lxd(old), mount("t", "m", &[way(Kind::Virtiofs, 1, ""), plan9.clone()]));
    assert_eq!(lxd(old), of(Flavour::LxdOld, old));
    assert_eq!(incus(old), mount("t", "m", &[plan9]));
}

#[test]
fn rejects_invalid_mounts() {
    let entry = |source: &str, target: &str, kind: &str| {
        lxd(&format!("{{\"source\":{source},\"target\":{target},\"fstype\":{kind}}}"))
    };
    let (tag, path, kind) = ("\"t\"", "\"/m\"", "\"virtiofs\"");
    assert!(entry(tag, path, kind).is_ok());
    for target in ["\"/\"", "\"\"", "null", "\"/a\\u0000\""] {
        assert_eq!(entry(tag, target, kind), Err(BadMount::Target), "{target}");
    }
    assert_eq!(entry(tag, "\"/a/../b\"", kind), Err(BadMount::Climbs));
    for source in ["\"\"", "null", "\"a\\u0000b\""] {
        assert_eq!(entry(source, path, kind), Err(BadMount::Source), "{source}");
    }
    for kind in ["\"ext4\"", "\"\"", "null", "\"Virtiofs\""] {
        assert_eq!(entry(tag, path, kind), Err(BadMount::Kind), "{kind}");
    }
    for shape in ["", "[]", "{", "7", "{\"source\":7}", "{\"type\":7"] {
        assert_eq!(lxd(shape), Err(BadMount::Shape), "{shape}");
    }
}

/// A mount by an event, with `over` cleared so that it compares with [`mount`].
fn plugged(wanted: Result<Wanted, BadMount>) -> Result<Wanted, BadMount> {
    match wanted {
        Ok(Wanted::Mount { source, target, ways, over: true }) => {
            Ok(Wanted::Mount { source, target, ways, over: false })
        }
        other => panic!("{other:?}"),
    }
}

const ADDED: &str = r#"{"type":"device","timestamp":"x","metadata":{"action":"added","name":"d-1",
    "config":{"type":"disk","path":"/mnt/d","source":"/srv"}}}"#;

#[test]
fn mounts_an_added_and_unmounts_a_removed_disk() {
    let virtiofs = [way(Kind::Virtiofs, 0, "")];
    assert_eq!(plugged(lxd(ADDED)), mount("lxd_d--1", "mnt/d", &virtiofs));
    assert_eq!(plugged(incus(ADDED)), mount("incus_d-1", "mnt/d", &virtiofs));
    let told = r#""added","mount":{"source":"lxd_q","target":"","fstype":"","options":["ro"]}"#;
    let told = ADDED.replace("\"added\"", told);
    assert_eq!(plugged(lxd(&told)), mount("lxd_q", "mnt/d", &[way(Kind::Virtiofs, 1, "")]));
    let removed = ADDED.replace("added", "removed");
    assert_eq!(lxd(&removed), Ok(Wanted::UnmountTarget("mnt/d".into())));
    assert_eq!(incus(&removed), Ok(Wanted::UnmountSource("incus_d-1".into())));
}

#[test]
fn ignores_other_events_and_devices() {
    assert_eq!(of(Flavour::LxdOld, ADDED), Ok(Wanted::Nothing));
    for (from, to) in [
        ("\"device\"", "\"config\""),
        ("added", "updated"),
        ("\"disk\"", "\"nic\""),
        ("\"/mnt/d\"", "\"\""),
        ("\"path\"", "\"pool\""),
        ("\"config\"", "\"other\""),
    ] {
        assert_eq!(lxd(&ADDED.replace(from, to)), Ok(Wanted::Nothing), "{to}");
    }
    let climbing = ADDED.replace("/mnt/d", "/mnt/../etc");
    assert_eq!(lxd(&climbing), Err(BadMount::Climbs));
    assert_eq!(lxd(&climbing.replace("added", "removed")), Err(BadMount::Climbs));
}

/// The vectors of LXD's `lxd-agent/events_test.go`.
#[test]
fn only_added_devices_return_errors_to_lxd() {
    let event = ADDED.replace("/mnt/d", "/mnt/../d1");
    let added = Value::parse(event.as_bytes()).unwrap();
    let why = lxd(&event).unwrap_err();
    assert_eq!(refusal(added, why), "Invalid path \"/mnt/../d1\": Path must not contain '..'");
    assert_eq!(refusal(added, BadMount::Source), "Invalid device event: no mount tag");
    assert!(is_answered(Flavour::Lxd, added));
    assert!(!is_answered(Flavour::Incus, added) && !is_answered(Flavour::LxdOld, added));
    for other in [event.replace("added", "removed"), event.replace("action", "name"), "{}".into()] {
        assert!(!is_answered(Flavour::Lxd, Value::parse(other.as_bytes()).unwrap()), "{other}");
    }
}
