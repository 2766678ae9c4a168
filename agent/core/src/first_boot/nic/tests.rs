use super::*;
use std::collections::BTreeMap;

use crate::json::JsonError;
use proptest::prelude::*;

fn called(text: &str) -> Name {
    usable(text.as_bytes()).unwrap()
}

#[test]
fn reads_nics_from_the_hosts_devices() {
    let devices = br#"{"type":"sync","metadata":{"root":{"type":"disk","path":"/","name":"x","hwaddr":"00:16:3e:aa:bb:01"},
        "later":{"type":"nic","nictype":"p2p","name":"lan9","hwaddr":"00:16:3e:aa:bb:cc","mtu":"1400"},
        "nameless":{"type":"nic","hwaddr":"00:16:3e:aa:bb:dd"},
        "odd":{"type":"nic","name":"a/b","hwaddr":"00:16:3e:aa:bb:ee"},
        "odder":{"type":"nic","name":"lan1","hwaddr":"00:16:3e:aa:bb:ff","mtu":"12345678901234567890"},
        "without":{"type":"nic","name":"lan2"},"none":null,"list":[]}}"#;
    let read =
        |devices: &[u8]| Wanted::of_devices(Value::parse(devices).unwrap()).collect::<Vec<_>>();
    let shown = |nic: Wanted| format!("{:x} {:?} {:?}", nic.mac[5], nic.name.as_deref(), nic.mtu);
    let found: Vec<_> = read(devices).into_iter().map(shown).collect();
    assert_eq!(found, ["cc Some(\"lan9\") Some(1400)", "dd None None", "ff Some(\"lan1\") None"]);
    for other in [&b"[]"[..], b"{}", br#"{"metadata":"x"}"#] {
        assert_eq!(read(other), []);
    }
}

#[test]
fn rejects_invalid_members_with_the_reason() {
    let with = |name: &str, mac: &str, mtu: &str| {
        let file = format!(r#"{{"nic_name":{name},"mac_address":{mac},"mtu":{mtu}}}"#);
        Wanted::parse(file.as_bytes()).unwrap_err()
    };
    let mac = "\"00:16:3e:aa:bb:cc\"";
    let all = r#""a/b"; ".."; "sixteen-letters-"; "eth%d"; "a b"; 7; "a\u0000""#;
    for name in all.split("; ") {
        assert_eq!(with(name, mac, "0"), NAME, "{name}");
    }
    let all = "\"\"; null; \"00:16:3e:aa:bb\"; \"00:16:3e:aa:bb:cc:dd\"; \"0:16:3e:aa:bb:ccc\"; \
         \"+1:16:3e:aa:bb:cc\"";
    for mac in all.split("; ") {
        assert_eq!(with("\"a\"", mac, "0"), MAC, "{mac}");
    }
    for mtu in ["-1", "1.5", "\"9\"", "4294967296"] {
        assert_eq!(with("\"a\"", mac, mtu), MTU, "{mtu}");
    }
    assert_eq!(Wanted::parse(b"[]"), Err(JsonError::Shape.into()));
}

fn wanted(mac: u8, name: &str) -> Wanted {
    Wanted { mac: [mac; 6], name: Some(called(name)), mtu: None }
}

#[test]
fn does_not_mistake_a_stacked_link_for_its_nic() {
    let wanted = [wanted(1, "lan"), wanted(2, "wan"), wanted(3, "gone")];
    let mut search = Search::new(&wanted);
    let mac = [[1u8; 6], [2; 6]];
    let link =
        |index, name, now: usize| Link { index, name, hardware: &mac[now - 1], ..Link::default() };
    // A bond gives its members the same address; their permanent addresses stay.
    search.see(&Link { permanent: &mac[1], ..link(2, b"eth1", 1) });
    search.see(&Link { permanent: &mac[0], ..link(3, b"eth0", 1) });
    search.see(&link(4, b"bond0", 1));
    search.see(&link(5, b"br0", 2));
    assert_eq!(search.missing().collect::<Vec<_>>(), [&wanted[2]]);
    let groups = search.groups().into_iter().flatten();
    let names: Vec<_> =
        groups.map(|nic| format!("{}>{}", nic.name, nic.new_name.unwrap())).collect();
    assert_eq!(names, ["eth0>lan", "eth1>wan"]);
}

#[test]
fn selects_the_oldest_link_without_an_own_address() {
    for (name, expected) in [("lan", vec![3]), ("eth0", vec![])] {
        let wanted = [wanted(1, name)];
        let mut search = Search::new(&wanted);
        for (index, name) in [(9, &b"br0"[..]), (3, b"eth0"), (12, b"vlan7")] {
            search.see(&Link { index, name, hardware: &[1; 6], ..Link::default() });
        }
        // A NIC that is already configured is not changed.
        let found: Vec<_> = search.groups().concat().iter().map(|nic| nic.index).collect();
        assert_eq!(found, expected);
    }
}

/// The kernel's links by index: name, up, MTU.
type Links = BTreeMap<u32, (Name, bool, u32)>;

/// Applies a change like the kernel; returns false if it refuses.
fn act(links: &mut Links, index: u32, act: &Change) -> bool {
    let taken = |links: &Links, name: &Name| links.values().any(|link| link.0 == *name);
    match act {
        Change::Name(name) if taken(links, name) || links[&index].1 => return false,
        Change::Name(name) => links.get_mut(&index).unwrap().0 = name.clone(),
        Change::Up | Change::Down => links.get_mut(&index).unwrap().1 = *act == Change::Up,
        Change::Mtu(mtu) => links.get_mut(&index).unwrap().2 = *mtu,
    }
    true
}

fn links_and_changes() -> impl Strategy<Value = (Vec<usize>, Vec<(usize, bool, u32)>, usize)> {
    (1usize..6).prop_flat_map(|count| {
        (
            Just((0..count).collect::<Vec<_>>()).prop_shuffle(),
            proptest::collection::vec((0usize..8, any::<bool>(), 1u32..4), count),
            0usize..40,
        )
    })
}

proptest! {
    /// Any permutation of names works from any state; if a step fails, undoing restores its group.
    #[test]
    fn permutes_names_and_undoes_a_group_on_failure(
        (order, wishes, fail_at) in links_and_changes()
    ) {
        let mut links = Links::new();
        let mut wanted = vec![];
        for (position, (to, up, mtu)) in wishes.iter().enumerate() {
            let index = u32::try_from(position).unwrap() + 2;
            links.insert(index, (called(&format!("eth{position}")), *up, 1));
            let mac = [u8::try_from(position).unwrap(); 6];
            // Take another NIC's name, or an unused one.
            let target = if *to < 6 { order[position] } else { to * 10 + position };
            wanted.push(Wanted { mac, name: Some(called(&format!("eth{target}"))), mtu: Some(*mtu) });
        }
        let mut search = Search::new(&wanted);
        for (index, (name, up, mtu)) in &links {
            let mac = [u8::try_from(index - 2).unwrap(); 6];
            search.see(&Link { index: *index, flags: u32::from(*up), name: name.as_bytes(), hardware: &mac, mtu: *mtu, ..Link::default() });
        }
        let clash = wanted.iter().enumerate().any(|(at, one)| {
            wanted.iter().skip(at + 1).any(|other| one.name == other.name)
        });
        let mut failed = false;
        for group in search.groups() {
            let before = links.clone();
            let steps = steps(&group);
            for (at, step) in steps.iter().enumerate() {
                failed = at == fail_at || !act(&mut links, step.index, &step.act);
                if failed {
                    for done in steps[..at].iter().rev() {
                        if let Some(undo) = &done.undo {
                            prop_assert!(act(&mut links, done.index, undo), "{:?}", done);
                        }
                    }
                    prop_assert_eq!(&links, &before);
                    break;
                }
            }
            if failed { break; }
        }
        if fail_at >= 30 && !clash {
            prop_assert!(!failed);
            for (at, wanted) in wanted.iter().enumerate() {
                let link = &links[&(u32::try_from(at).unwrap() + 2)];
                prop_assert_eq!(Some(&link.0), wanted.name.as_ref());
                prop_assert_eq!(Some(link.2), wanted.mtu);
            }
        }
    }
}
