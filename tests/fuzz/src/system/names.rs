//! Paths, addresses, names and process 1's command line. Invariants: a target has the components
//! that `std::path` finds below the root, without `..`; displayed names read back; only near misses
//! of port names are called misspelt; os-release and arguments follow their quoting.

use std::path::{Component, Path};

use mote_core::flavour::{PORT_NAMES, misspelt};
use mote_core::init::button;
use mote_core::init::plan::Plan;
use mote_core::report::proc::mounts::unescape;
use mote_core::report::proc::{full_name, variable};
use mote_core::report::proc::{keyed, number};
use strsim::levenshtein;

use crate::prelude::*;

fn target(path: &str) {
    let target = Target::parse(path);
    let rooted = format!("/{path}");
    let parts: Vec<Component<'_>> = Path::new(&rooted).components().skip(1).collect();
    let climbs = parts.contains(&Component::ParentDir);
    let is_good = !parts.is_empty() && !climbs && !path.contains('\0');
    assert_eq!(target.is_some(), is_good, "{path:?}");
    assert_eq!(Target::absolute(path), target.filter(|_| path.starts_with('/')));
    if let Some(target) = target {
        let theirs: Vec<_> = parts.iter().map(|part| part.as_os_str().to_str().unwrap()).collect();
        assert_eq!(target.parts().collect::<Vec<_>>(), theirs);
        assert!(!target.below_root().starts_with('/') && !target.below_root().ends_with('/'));
    }
}

fn address(text: &str, cid: u32, port: u32) {
    if let Some((cid, port)) = HostAddress::parse(text)
        && let Some(address) = HostAddress::new(cid, port)
    {
        assert_eq!(HostAddress::parse(&address.to_string()), Some((cid, port)));
    }
    assert_eq!(HostAddress::parse(&format!("{cid}:{port}")), Some((cid, port)));
}

fn port_name(name: &str) {
    let is_name = PORT_NAMES.iter().any(|(known, _)| *known == name);
    let meant = misspelt(name);
    assert!(!is_name || meant.is_none());
    if let Some(meant) = meant {
        assert!(levenshtein(name, meant) <= 3, "{name}");
    }
    for (known, _) in PORT_NAMES.iter().take(2).filter(|_| !is_name) {
        // A single typing error is always detected.
        assert!(levenshtein(name, known) > 1 || meant.is_some(), "{name}");
    }
    assert!(Flavour::parse(name).is_none_or(|flavour| flavour.name() == name));
}

/// Writes `NAME="..."` as os-release(5) specifies, and reads it back.
fn release(value: &str) {
    let mut line = String::from("NAME=\"");
    for character in value.chars() {
        if "\"\\$`".contains(character) {
            line.push('\\');
        }
        line.push(character);
    }
    line += "\"\n";
    assert_eq!(variable(line.as_bytes(), "NAME").as_deref(), Some(value.as_bytes()));
    assert_eq!(variable(line.as_bytes(), "NAM"), None);
}

fn lines(line: &[u8]) {
    if let Some(name) = full_name(line, b"vm") {
        assert!(
            !name.is_empty() && !name.iter().any(u8::is_ascii_whitespace) && !name.contains(&b'#')
        );
    }
    assert!(unescape(line).count() <= line.len());
    let text = text(line);
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let theirs = plain.then(|| text.parse().unwrap_or(u64::MAX));
    assert!(text.len() < line.len() || number(line) == theirs);
    let counted = format!("oom_kill {text}");
    assert_eq!(keyed(counted.as_bytes(), "oom_kil"), None);
    assert!(!plain || keyed(counted.as_bytes(), "oom_kill") == theirs);
}

fn asked(text: &str, bytes: &[u8]) {
    let plan = Plan::read(text, text);
    assert!(plan.programs.iter().all(|program| !program.arguments.is_empty()));
    if !text.contains(['\'', '"', '\0']) {
        // A quoted word is one argument, whatever it contains.
        let plan = Plan::read(&format!("a mote.run=\"/p '{text}'\" b"), "");
        let arguments = plan.programs.first().map(|program| program.arguments.as_slice());
        assert_eq!(
            arguments.and_then(|all| all.get(1)).map(|it| it.to_bytes()),
            Some(text.as_bytes())
        );
    }
    assert!(!button::is_pressed(bytes) || bytes.len() >= button::EVENT);
    assert!(!button::has_it(text) || text.split_ascii_whitespace().count() > 1);
}

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let (cid, port) = (input.word(), input.word());
    let rest = text(input.0);
    target(rest);
    address(rest, cid, port);
    port_name(&rest[..rest.floor_char_boundary(40)]);
    release(rest);
    lines(input.0);
    asked(rest, input.0);
}
