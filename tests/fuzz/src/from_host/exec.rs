//! What the host wants run, from arbitrary bytes, and the words of the control socket. What must
//! hold: no panic; what is read is what serde_json reads there; nothing that no program can be given
//! gets through; the metadata we answer with is JSON that says the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mote_core::hostapi::exec::{Control, LONGEST, Request, SHOWN, control};
use mote_core::json::Document;
use serde_json::Value;

fn request(data: &[u8]) {
    let Ok(mut request) = Request::parse(data, usize::MAX) else { return };
    assert!(!request.name().is_empty() && !request.directory.contains('\0'));
    let words = |request: &Request| -> Vec<String> {
        request.command.texts().map(Into::into).collect()
    };
    assert_eq!(words(&request).len(), request.command.count());
    // Lone surrogates are JSON to us, as to Go.
    if let Ok(theirs) = serde_json::from_slice::<Value>(data) {
        assert_eq!(theirs["command"], Value::from(words(&request)));
        let user = theirs["user"].as_u64().unwrap_or(0);
        assert_eq!(u64::from(request.user), user);
    }
    assert!(request.size.width > 0 && request.size.height > 0);
    request.add_defaults(data.len() % 2 == 0);
    assert!(request.variable("PATH").is_some() && !request.directory().is_empty());
    let program = request.program();
    for directory in program.directories() {
        if let Some(place) = program.place(directory, &mut [0; LONGEST]) {
            assert!(place.to_bytes().contains(&b'/'));
        }
    }
    let secrets = [("control", "s")].into_iter();
    let metadata = Document::new(0, |json| request.write_metadata(json, secrets));
    assert!(metadata.bytes() < 2 * SHOWN + 200);
    let metadata: Value = serde_json::from_str(metadata.value().raw()).expect("JSON");
    let shown = metadata["command"].as_array().expect("a list");
    assert!(shown.iter().zip(words(&request)).all(|(one, other)| *one == Value::from(other)));
    assert!(data.len() > SHOWN / 6 || shown.len() == request.command.count());
}

fuzz_target!(|data: &[u8]| {
    request(data);
    match control(data) {
        Some(Control::Resize(size)) => assert!(size.width > 0 && size.height > 0),
        Some(Control::Signal(signal)) => assert!((1..=64).contains(&signal)),
        None => {}
    }
});
