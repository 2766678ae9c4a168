//! Exec requests and control messages, generated and arbitrary. Invariants: same values as
//! serde_json, nothing passes that no program can receive, and the metadata is JSON with the same
//! content.

use mote_core::hostapi::exec::power::Power;
use mote_core::hostapi::exec::{BY_HOST, Control, MAX_PATH, Request, SHOWN, STARTED_BY, control};

use crate::prelude::*;

fn request(data: &[u8]) {
    let Ok(mut request) = Request::parse(data, usize::MAX) else { return };
    assert!(!request.name().is_empty() && !request.directory.contains('\0'));
    let words =
        |request: &Request| -> Vec<String> { request.command.texts().map(Into::into).collect() };
    assert_eq!(words(&request).len(), request.command.count());
    let asked = Power::of(&request).map(|power| power.name);
    assert!(asked.is_none_or(|name| request.user == 0 && words(&request) == [name]));
    // mote accepts lone surrogates as JSON, like Go.
    if let Ok(theirs) = serde_json::from_slice::<Value>(data) {
        assert_eq!(theirs["command"], Value::from(words(&request)));
        let user = theirs["user"].as_u64().unwrap_or(0);
        assert_eq!(u64::from(request.user), user);
    }
    assert!(request.size.width > 0 && request.size.height > 0);
    request.add_defaults(&|directory| data.len() % directory.len() < 5);
    assert!(request.variable("PATH").is_some() && !request.directory().is_empty());
    let program = request.program();
    for directory in program.directories() {
        if let Some(place) = program.place(directory, &mut [0; MAX_PATH]) {
            assert!(place.to_bytes().contains(&b'/'));
        }
    }
    let secrets = [("control", "s")].into_iter();
    let metadata = Document::new(0, |json| request.write_metadata(json, secrets));
    assert!(metadata.bytes() < 2 * SHOWN + 200);
    let metadata: Value = serde_json::from_str(metadata.value().raw()).expect("JSON");
    let shown = metadata["command"].as_array().expect("a list");
    assert!(
        shown.iter().zip(words(&request)).all(|(one, other)| one.as_str() == Some(other.as_str()))
    );
    assert!(data.len() > SHOWN / 6 || shown.len() == request.command.count());
}

fn made_up(mut input: Input<'_>) {
    let (user, group, bits) = (input.word(), input.word(), input.byte());
    let (width, height) = (input.short(), input.short());
    let cwd = input.text();
    let command: Vec<&str> = (0..=bits % 4).map(|_| input.text()).collect();
    let pairs: Vec<_> = (0..bits / 4 % 4).map(|_| (input.text(), input.text())).collect();
    let environment: serde_json::Map<_, _> =
        pairs.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect();
    let body = serde_json::json!({
        "command": command,
        "environment": environment,
        "interactive": bits & 64 == 0,
        "wait-for-websocket": bits & 128 == 0,
        "width": width,
        "height": height,
        "user": user,
        "group": group,
        "cwd": cwd,
    });
    let body = body.to_string();
    request(body.as_bytes());
    let has_nul = command.iter().chain([&cwd]).any(|text| text.contains('\0'));
    let bad = |(name, value): (&String, &Value)| {
        name.is_empty() || name.contains(['=', '\0']) || value.as_str().unwrap().contains('\0')
    };
    let is_odd = has_nul || environment.iter().any(bad);
    let is_good = bits & 128 == 0 && !command[0].is_empty();
    match Request::parse(body.as_bytes(), usize::MAX) {
        Ok(request) => {
            assert!(is_good && !has_nul, "{body}");
            assert_eq!((request.user, request.group), (user, group));
            assert_eq!((request.interactive, &*request.directory), (bits & 64 == 0, cwd));
            assert_eq!(request.environment.count(), environment.len());
            if width > 0 && height > 0 {
                assert_eq!(
                    (u32::from(request.size.width), u32::from(request.size.height)),
                    (width, height)
                );
            }
            // Programs interpret such a name differently.
            let is_clear = !environment.keys().any(|name| name.contains('='));
            for (name, value) in &environment {
                if is_clear {
                    assert_eq!(request.variable(name), value.as_str(), "{body}");
                }
            }
            let mut kept = request;
            kept.drop_environment();
            let texts: Vec<&str> = kept.environment.texts().collect();
            let (started_by, others) = texts.split_last().expect("who started the command");
            assert_eq!(*started_by, [STARTED_BY, "=", BY_HOST].concat());
            let is_plain =
                |text: &&str| ["TERM=", "LANG=", "LC_"].iter().any(|one| text.starts_with(one));
            assert!(others.iter().all(is_plain), "{others:?}");
        }
        Err(why) => assert!(!is_good || is_odd, "{body}: {why:?}"),
    }
}

pub fn run(data: &[u8]) {
    if let [0, made @ ..] = data {
        return made_up(Input(made));
    }
    request(data);
    match control(data) {
        Some(Control::Resize(size)) => assert!(size.width > 0 && size.height > 0),
        Some(Control::Signal(signal)) => assert!((1..=64).contains(&signal)),
        None => {}
    }
}
