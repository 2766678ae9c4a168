//! Arbitrary bytes for every parser of the core. Each target is a function of one input, which
//! panics when an invariant is violated. libFuzzer calls it with generated inputs (`scripts/fuzz`),
//! and an ordinary test with the stored ones (`scripts/test harness`).
#![allow(missing_docs, reason = "code of tests: the name of an item says what it is")]
// Every panic is a bug.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]

pub mod corpus;
mod input;
pub mod tally;

mod prelude {
    pub(crate) use core::time::Duration;

    pub(crate) use mote_core::flavour::Flavour;
    pub(crate) use mote_core::guest_path::Target;
    pub(crate) use mote_core::host_address::HostAddress;
    pub(crate) use mote_core::http::head::Method;
    pub(crate) use mote_core::json::Document;
    pub(crate) use mote_core::limits;
    pub(crate) use mote_core::time::Uptime;
    pub(crate) use serde_json::Value;

    pub(crate) use crate::input::{Input, METHODS, decoded, is_deep, segments, text};
}

/// Codecs: JSON, SFTP, websockets, YAML.
pub mod codec {
    pub mod json;
    pub mod sftp;
    pub mod ws;
    pub mod yaml;
}

/// Input from programs in the guest, and eviction of their connections.
pub mod from_guest {
    pub mod admission;
    pub mod answer;
    pub mod devlxd;
}

/// Input from the host, and the state machines that it drives.
pub mod from_host {
    pub mod event;
    pub mod exec;
    pub mod mount;
    pub mod operation;
    pub mod peer;
    pub mod policy;
    pub mod serial;
    pub mod status_ops;
}

/// HTTP/1.1 in both directions.
pub mod http {
    pub mod body;
    pub mod connection_ops;
    pub mod head;
    pub mod path;
    pub mod reply;
}

/// Input from the kernel and the guest's files, names, and counters.
pub mod system {
    pub mod certificate;
    pub mod counters;
    pub mod disk;
    pub mod names;
    pub mod netlink;
    pub mod proc;
}

/// The whole agent.
pub mod whole {
    pub mod scenario;
}

macro_rules! targets {
    ($($room:ident: $($name:ident)*;)*) => {
        pub const TARGETS: &[&str] = &[$($(stringify!($name),)*)*];

        /// Returns the page's text about all targets: the start of each file.
        pub fn about() -> String {
            let heads = [$($((
                stringify!($name),
                include_str!(concat!(stringify!($room), "/", stringify!($name), ".rs")),
            ),)*)*];
            let mut out = String::new();
            for (name, text) in heads {
                let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
                out += &format!("\n`{name}`: {}\n", lines.map(str::trim).collect::<Vec<_>>().join("\n"));
            }
            out
        }

        // Inlined, so that a program contains the code of its own target only.
        #[inline(always)]
        #[allow(clippy::inline_always)]
        pub fn run(target: &str, input: &[u8]) {
            match target {
                $($(stringify!($name) => $room::$name::run(input),)*)*
                other => panic!("no target {other}"),
            }
        }
    };
}

targets! {
    codec: json sftp ws yaml;
    from_guest: admission answer devlxd;
    from_host: event exec mount operation peer policy serial status_ops;
    http: body connection_ops head path reply;
    system: certificate counters disk names netlink proc;
    whole: scenario;
}
