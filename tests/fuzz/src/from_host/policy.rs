//! Policies, generated as YAML and arbitrary. Invariants: exactly the written features are allowed,
//! a file with any fault denies everything, removing limits keeps the features, messages have no
//! control characters, and lists name what they omit.

use mote_core::hostapi::exec::Request;
use mote_core::hostapi::policy::{Capability, Features, Policy, Whose};
use mote_core::hostapi::port_forward::Target;
use mote_core::ready_when::Condition;

use crate::prelude::*;

#[derive(Debug, Default)]
struct Meant {
    features: Vec<Capability>,
    users: Option<Vec<(u32, u32)>>,
    commands: Option<Vec<&'static str>>,
    ports: Option<Vec<(u32, u32)>>,
    read_only: bool,
}

const COMMANDS: [&str; 4] = ["/bin/sh", "/usr/bin/uptime", "/a b", "/bin/shell"];

fn ranges(input: &mut Input<'_>, least: u32) -> Option<Vec<(u32, u32)>> {
    let count = input.byte() % 5;
    (count < 4).then(|| {
        let mut range = || {
            let first = least.max(input.short() % 2000);
            (first, first + u32::from(input.byte() % 8))
        };
        (0..count).map(|_| range()).collect()
    })
}

fn meant(input: &mut Input<'_>) -> Meant {
    let bits = input.short();
    let is_set = |(at, _): &(usize, Capability)| bits >> at & 1 == 1;
    let features =
        Capability::ALL.into_iter().enumerate().filter(is_set).map(|(_, it)| it).collect();
    let chosen = input.byte();
    let commands = (chosen & 16 == 0).then(|| {
        let all = COMMANDS.into_iter().enumerate();
        all.filter(|(at, _)| chosen >> at & 1 == 1).map(|(_, command)| command).collect()
    });
    let read_only = chosen & 32 == 0;
    Meant { features, commands, users: ranges(input, 0), ports: ranges(input, 1), read_only }
}

fn list(out: &mut String, name: &str, items: Option<Vec<String>>) {
    if let Some(items) = items {
        *out += &format!("{name}: [{}], ", items.join(", "));
    }
}

fn written(meant: &Meant) -> String {
    let shown = |all: &Option<Vec<(u32, u32)>>| {
        let one = |(first, last): &(u32, u32)| {
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        };
        all.as_ref().map(|all| all.iter().map(one).collect())
    };
    let mut out = String::from("# made up\nfeatures:\n");
    for capability in &meant.features {
        let mut limits = String::new();
        match capability {
            Capability::Exec => {
                list(&mut limits, "users", shown(&meant.users));
                let quoted = |all: &Vec<&str>| all.iter().map(|it| format!("\"{it}\"")).collect();
                list(&mut limits, "commands", meant.commands.as_ref().map(quoted));
            }
            Capability::Files if meant.read_only => limits += "read-only: true, ",
            Capability::PortForward => list(&mut limits, "ports", shown(&meant.ports)),
            _ => {}
        }
        let limits = limits.strip_suffix(", ");
        let value = limits.map_or("true".to_owned(), |limits| format!("{{{limits}}}"));
        out += &format!("  {}: {value}\n", capability.name());
    }
    if meant.features.is_empty() {
        out += "  exec: false\n";
    }
    out
}

fn takes(ranges: Option<&Vec<(u32, u32)>>, number: u32) -> bool {
    ranges.is_none_or(|all| all.iter().any(|(first, last)| (*first..=*last).contains(&number)))
}

fn made_up(input: &mut Input<'_>) {
    let meant = meant(input);
    let text = written(&meant);
    let policy = Policy::from_yaml(text.as_bytes(), Whose::Mote, true, &mut |fault| {
        panic!("{fault}\n{text}")
    });
    for capability in Capability::ALL {
        assert_eq!(policy.allows(capability), meant.features.contains(&capability), "{text}");
    }
    let (number, group) = (input.short() % 2100, input.short() % 2100);
    let command = COMMANDS[usize::from(input.byte() % 4)];
    if policy.allows(Capability::Exec) {
        let body = format!(
            "{{\"command\":[\"{command}\"],\"wait-for-websocket\":true,\"user\":{number},\"group\":{group}}}"
        );
        let request = Request::parse(body.as_bytes(), usize::MAX).unwrap();
        let expected = takes(meant.users.as_ref(), number)
            && takes(meant.users.as_ref(), group)
            && meant.commands.as_ref().is_none_or(|all| all.contains(&command));
        assert_eq!(policy.check_exec(&request).is_ok(), expected, "{body}\n{text}");
    }
    if policy.allows(Capability::PortForward) && number > 0 {
        for (address, is_own) in [("127.0.0.1", true), ("192.0.2.1", false), ("::1", true)] {
            let body = format!("{{\"address\":\"{address}\",\"port\":{number}}}");
            let target = Target::parse(body.as_bytes()).unwrap();
            let listed = takes(meant.ports.as_ref(), number) && is_own;
            let expected = meant.ports.is_none() || listed;
            assert_eq!(policy.check_port(&target).is_ok(), expected, "{body}\n{text}");
        }
    }
    let is_read_only = meant.read_only && policy.allows(Capability::Files);
    assert_eq!(policy.read_only(), is_read_only);
}

fn arbitrary(data: &[u8]) {
    for whose in [Whose::Mote, Whose::Incus] {
        let mut faults = Vec::new();
        let mut policy =
            Policy::from_yaml(data, whose, true, &mut |fault| faults.push(fault.to_string()));
        if !faults.is_empty() {
            assert!(Capability::ALL.iter().all(|capability| !policy.allows(*capability)));
        }
        assert!(policy.ready_when().all(|one| Condition::parse(one).is_some()));
        assert!(faults.len() <= 8);
        assert!(faults.iter().all(|fault| !fault.contains(char::is_control)), "{faults:?}");
        let mut is_bad = false;
        let coarse = Policy::from_yaml(data, whose, false, &mut |_| is_bad = true);
        // Faults may be in limits that have no effect.
        assert!(is_bad <= !faults.is_empty());
        if faults.is_empty() {
            assert_eq!(coarse.features, policy.features);
        }
        let mut said = policy.to_string();
        policy.close_loopholes(policy.features, &mut said);
        assert!(!said.contains(char::is_control), "{said}");
    }
}

fn names(list: &str) {
    match (Features::only(list), Features::without(list)) {
        (Ok(only), Ok(without)) => {
            assert_eq!(only.and(without), Features::NONE);
            for capability in Capability::ALL {
                let is_named = list.split(',').any(|name| name.trim() == capability.name());
                assert_eq!(
                    (only.allows(capability), without.allows(capability)),
                    (is_named, !is_named)
                );
            }
        }
        (Err(one), Err(other)) => {
            assert_eq!(one, other);
            assert!(Capability::parse(one.0).is_none() && list.contains(one.0));
            assert!(!one.to_string().contains(char::is_control));
        }
        (one, other) => panic!("{one:?} {other:?}"),
    }
}

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    match input.byte() % 3 {
        0 => made_up(&mut input),
        1 => arbitrary(input.0),
        _ => names(text(input.0)),
    }
}
