//! The body of PUT, `agent.conf` and PEM. Invariants: mote accepts exactly the valid hosts that
//! serde_json reads, and DER fits the buffer to the byte and survives PEM encoding.

use base64::prelude::{BASE64_STANDARD, Engine};
use mote_core::hostapi::host_info::{CERTIFICATE, HostInfo};
use mote_core::json::BadDocument;
use mote_core::tls::pem::{self, PemError};

use crate::prelude::*;

fn told(data: &[u8]) {
    let ours = HostInfo::parse(data);
    let theirs = serde_json::from_slice::<Value>(data).ok().filter(Value::is_object);
    let Some(theirs) = theirs else {
        // Lone surrogates and huge numbers in other members are JSON, too.
        return;
    };
    let number = |key: &str| theirs[key].as_u64().and_then(|number| u32::try_from(number).ok());
    let (cid, port) = (number("cid"), number("port"));
    let address = cid.zip(port).and_then(|(cid, port)| HostAddress::new(cid, port));
    match ours {
        Ok(told) => {
            assert_eq!(Some(told.address), address);
            let on = |key: &str| theirs[key] == Value::Bool(true);
            assert_eq!(told.guest_api, on("devlxd") || on("dev_incus"));
            let mut text = Vec::new();
            told.certificate_pem(|piece| text.extend_from_slice(piece));
            assert_eq!(theirs["certificate"].as_str().map(str::as_bytes), Some(text.as_slice()));
        }
        Err(BadDocument::Member(what)) if what.starts_with("cid") => assert_eq!(address, None),
        Err(BadDocument::Member(_)) => {
            let text = theirs["certificate"].as_str();
            // A six-byte escape is one character.
            assert!(text.is_none_or(|text| text.len() > CERTIFICATE / 6));
        }
        Err(BadDocument::Json(_)) => assert!(is_deep(data)),
    }
}

type Read = fn(&[u8], &mut [u8]) -> Result<Vec<u8>, PemError>;

fn block(data: &[u8], label: &str, read: Read) {
    let mut space = vec![0; data.len()];
    let Ok(der) = read(data, &mut space) else { return };
    assert!(!der.is_empty() && der.len() <= data.len() * 3 / 4);
    assert_eq!(read(data, &mut vec![0; der.len()]), Ok(der.clone()));
    assert_eq!(read(data, &mut vec![0; der.len() - 1]), Err(PemError::TooLong));
    let text = BASE64_STANDARD.encode(&der);
    let again = format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n");
    assert_eq!(read(again.as_bytes(), &mut space), Ok(der));
}

pub fn run(data: &[u8]) {
    told(data);
    block(data, "CERTIFICATE", |text, out| pem::certificate(text, out).map(<[u8]>::to_vec));
    block(data, "PRIVATE KEY", |text, out| {
        pem::private_key(text, out).map(|(_, der)| der.to_vec())
    });
}
