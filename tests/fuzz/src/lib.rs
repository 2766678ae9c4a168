//! Arbitrary bytes for every parser of the core. Each target is a function of one input, which
//! panics when an invariant is violated. libFuzzer calls it with generated inputs (`scripts/fuzz`),
//! and an ordinary test with the stored ones (`scripts/test harness`).
#![allow(missing_docs, reason = "code of tests: the name of an item says what it is")]
// Every panic is a finding.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]

pub mod codec;
pub mod corpus;
pub mod from_guest;
pub mod from_host;
pub mod http;
mod input;
pub mod subjects;
pub mod system;
pub mod tally;
pub mod whole;

macro_rules! targets {
    ($($room:ident :: $name:ident,)*) => {
        pub const TARGETS: &[&str] = &[$(stringify!($name),)*];

        /// Returns the page's text about all targets: the start of each file.
        pub fn about() -> String {
            let heads = [$((
                stringify!($name),
                include_str!(concat!(stringify!($room), "/", stringify!($name), ".rs")),
            ),)*];
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
                $(stringify!($name) => $room::$name::run(input),)*
                other => panic!("no target {other}"),
            }
        }
    };
}

targets! {
    codec::json,
    codec::sftp,
    codec::ws,
    codec::yaml,
    from_guest::admission,
    from_guest::answer,
    from_guest::devlxd,
    from_host::event,
    from_host::exec,
    from_host::mount,
    from_host::operation,
    from_host::peer,
    from_host::policy,
    from_host::serial,
    from_host::status_ops,
    http::body,
    http::connection_ops,
    http::head,
    http::path,
    http::reply,
    system::certificate,
    system::counters,
    system::disk,
    system::names,
    system::netlink,
    system::proc,
    whole::scenario,
}
