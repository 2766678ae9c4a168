//! Events, their listeners, and the port to forward. Invariants: same values as serde_json, one
//! line per event, guests receive only config, device and restored events, listeners only the types
//! they requested, and ports are valid.

use mote_core::hostapi::event::{Audience, Posted, RESTORED, Subscription, one_line};
use mote_core::hostapi::port_forward::{BadTarget, Target};

use crate::prelude::*;

fn posted(data: &[u8]) {
    let Ok(theirs) = serde_json::from_slice::<Value>(data) else { return };
    let ours = Posted::parse(data);
    let Some(members) = theirs.as_object() else { return assert!(ours.is_err()) };
    let is_kind = members.get("type").is_none_or(|kind| kind.is_string() || kind.is_null());
    if let Ok(ours) = &ours {
        assert!(is_kind);
        assert_eq!(ours.kind, theirs["type"].as_str().unwrap_or(""));
        let metadata: Value = serde_json::from_str(ours.metadata.raw()).unwrap();
        assert_eq!(metadata, theirs["metadata"]);
        let line = one_line(Document::read(data.to_vec()).unwrap());
        assert_eq!(line.find(['\n', '\r']), Some(line.len() - 1));
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), theirs);
    }
    assert!(ours.is_ok() || !is_kind || is_deep(data), "{ours:?}");
}

fn forwarded(data: &[u8]) {
    let Ok(theirs) = serde_json::from_slice::<Value>(data) else { return };
    let ours = Target::parse(data);
    let port = theirs["port"].as_u64().and_then(|port| u16::try_from(port).ok());
    match ours {
        Ok(target) => {
            assert_eq!(Some(target.port), port);
            assert_ne!(target.port, 0);
            let name = theirs["address"].as_str().filter(|name| !name.is_empty());
            assert_eq!(target.name, name.unwrap_or("127.0.0.1"));
            let address = target.address().map(|address| address.port());
            assert!(address.is_none_or(|port| port == target.port));
        }
        Err(BadTarget::Port(_)) => assert!(port.is_none_or(|port| port == 0)),
        Err(BadTarget::Address) => assert!(!theirs["address"].is_string()),
        Err(BadTarget::Json(_)) => assert!(is_deep(data) || !theirs.is_object()),
    }
}

fn heard(asked: Option<&str>, kind: &str) {
    let [host, guest] = [Audience::Host, Audience::Guest]
        .map(|audience| Subscription::new(audience, asked).hears(kind));
    let pairs = || asked.unwrap_or("").split('&');
    let types =
        pairs().find_map(|pair| (pair == "type").then_some("").or(pair.strip_prefix("type=")));
    let types = types.unwrap_or("").to_owned();
    let types = types.split("%2C").flat_map(|part| part.split("%2c")).collect::<Vec<_>>().join(",");
    let wanted = types.is_empty() || types.split(',').any(|one| one == kind);
    assert_eq!(host, wanted && kind != RESTORED, "{asked:?} {kind}");
    assert_eq!(guest, wanted && matches!(kind, "config" | "device" | RESTORED));
}

pub fn run(data: &[u8]) {
    posted(data);
    forwarded(data);
    let mut input = Input(data);
    let asked = (input.byte() % 4 != 0).then(|| input.text());
    let kind =
        ["config", "device", "operation", text(input.0), RESTORED][usize::from(input.byte() % 5)];
    heard(asked, kind);
}
