//! What the host wants run, from arbitrary bytes, and the words of the control socket. What must
//! hold: no panic; what is read is what serde_json reads there; nothing that no program can be given
//! gets through; the metadata we answer with is JSON that says the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mote_agent::exec::{Control, Request, control};
use serde_json::Value;

fn request(data: &[u8]) {
    let Ok(mut request) = Request::parse(data) else { return };
    assert!(!request.command.is_empty() && !request.command[0].is_empty());
    let texts = request.command.iter().chain(request.environment.iter().map(|(name, _)| name));
    assert!(texts.chain([&request.directory]).all(|text| !text.contains('\0')));
    // Lone surrogates are JSON to us, as to Go.
    if let Ok(theirs) = serde_json::from_slice::<Value>(data) {
        assert_eq!(theirs["command"], Value::from(request.command.clone()));
        let user = theirs["user"].as_u64().unwrap_or(0);
        assert_eq!(u64::from(request.user), user);
    }
    assert!(request.size.width > 0 && request.size.height > 0);
    request.add_defaults(data.len() % 2 == 0);
    assert!(request.variable("PATH").is_some() && !request.directory().is_empty());
    for program in request.programs() {
        assert!(program.contains('/'));
    }
    let mut metadata = String::new();
    request.write_metadata(&mut metadata, [("control", "s")].into_iter()).unwrap();
    let metadata: Value = serde_json::from_str(&metadata).expect("JSON");
    assert_eq!(metadata["command"], Value::from(request.command.clone()));
    for (name, value) in &request.environment {
        assert_eq!(metadata["environment"][name], Value::from(value.clone()));
    }
}

fuzz_target!(|data: &[u8]| {
    request(data);
    match control(data) {
        Some(Control::Resize(size)) => assert!(size.width > 0 && size.height > 0),
        Some(Control::Signal(signal)) => assert!((1..=64).contains(&signal)),
        None => {}
    }
});
