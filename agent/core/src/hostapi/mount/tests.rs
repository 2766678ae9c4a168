//! Entries and events in the form in which hosts of each flavour send them.

use super::*;

fn of(flavour: Flavour, json: &str) -> Result<Wanted, BadMount> {
    let document = Value::parse(json.as_bytes()).map_err(|_| BadMount::Shape)?;
    wanted(flavour, document, |_| [0; 32])
}

fn lxd(json: &str) -> Result<Wanted, BadMount> {
    of(Flavour::Lxd, json)
}

fn incus(json: &str) -> Result<Wanted, BadMount> {
    of(Flavour::Incus, json)
}

fn plugged(tag: &str, flags: u32) -> Result<Wanted, BadMount> {
    let ways = [Way { kind: Kind::Virtiofs, flags, data: String::new() }].into();
    Ok(Wanted::Mount { source: tag.into(), target: "mnt/d".into(), ways, over: true })
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

const ADDED: &str = r#"{"type":"device","timestamp":"x","metadata":{"action":"added","name":"d-1",
    "config":{"type":"disk","path":"/mnt/d","source":"/srv"}}}"#;

#[test]
fn mounts_an_added_and_unmounts_a_removed_disk() {
    assert_eq!(lxd(ADDED), plugged("lxd_d--1", 0));
    assert_eq!(incus(ADDED), plugged("incus_d-1", 0));
    let told = r#""added","mount":{"source":"lxd_q","target":"","fstype":"","options":["ro"]}"#;
    let told = ADDED.replace("\"added\"", told);
    assert_eq!(lxd(&told), plugged("lxd_q", 1));
    let removed = ADDED.replace("added", "removed");
    assert_eq!(lxd(&removed), Ok(Wanted::UnmountTarget("mnt/d".into())));
    assert_eq!(incus(&removed), Ok(Wanted::UnmountSource("incus_d-1".into())));
}

#[test]
fn ignores_other_events_and_devices() {
    assert_eq!(of(Flavour::LxdOld, ADDED), Ok(Wanted::Nothing));
    let others = r#""device" "config"; added updated; "disk" "nic"; "/mnt/d" ""; "path" "pool"; "config" "x""#;
    for (from, to) in others.split("; ").filter_map(|pair| pair.split_once(' ')) {
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

/// Stands for a hash: bytes whose base64 is known.
fn known(_: &[u8]) -> [u8; 32] {
    *b"The quick brown fox jumps over t"
}

#[test]
fn hashes_long_names_beyond_the_hosts_limits() {
    let base64 = "VGhlIHF1aWNrIGJyb3duIGZveCBqdW1wcyBvdmVyIHQ";
    for (flavour, prefix, most) in
        [(Flavour::Lxd, "lxd_", 27), (Flavour::LxdOld, "lxd_", 27), (Flavour::Incus, "incus_", 30)]
    {
        let fits = "n".repeat(most);
        assert_eq!(tag(flavour, &fits, known), format!("{prefix}{fits}"));
        let hashed = format!("{prefix}{}", &base64[..most]);
        assert_eq!(tag(flavour, &"n".repeat(most + 1), known), hashed);
    }
    assert_eq!(tag(Flavour::Lxd, "my-disk/x", known), "lxd_my--disk-x");
    assert_eq!(tag(Flavour::Incus, "my-disk/x", known), "incus_my-disk/x");
    // The limit is for the encoded name.
    assert_eq!(tag(Flavour::Lxd, &"-".repeat(14), known).len(), 31);
    assert!(tag(Flavour::Lxd, &"-".repeat(14), known).starts_with("lxd_VGhl"));
}

#[test]
fn returns_a_share_with_the_mount_that_covers_it() {
    let table = b"1 0 0:1 / / rw - ext4 x rw\n\
        2 1 0:2 / /a rw - virtiofs one rw\n\
        3 1 0:3 / /b rw - virtiofs one rw\n\
        4 1 0:4 / /b rw - tmpfs one rw\n\
        5 1 0:5 / /c rw - 9p two rw\n\
        6 1 0:6 / /c rw - virtiofs one rw\n\
        7 1 0:7 / /d/e rw - virtiofs three rw\n\
        8 1 0:8 / /d rw - tmpfs over rw\n";
    let table: Vec<_> = entries(table).collect();
    let found = |chosen: fn(&Entry) -> bool| -> Vec<_> {
        let ids = |(share, cover): (&Entry, Option<&Entry>)| (share.id, cover.map(|by| by.id));
        shares(&table, chosen).map(ids).collect()
    };
    assert_eq!(found(|entry| entry.source == "one"), [(6, None), (3, Some(4)), (2, None)]);
    assert_eq!(found(|entry| entry.point == "/b"), [(3, Some(4))]);
    assert_eq!(found(|entry| entry.source == "two"), [(5, Some(6))]);
    assert_eq!(found(|entry| entry.source == "three"), [(7, Some(8))]);
    assert_eq!(found(|entry| entry.source == "x"), []);
}
