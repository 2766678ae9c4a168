//! The agent under deterministic simulation. What decides sequence is compiled from the files that ship; below it the
//! system is exchanged: virtual time, sockets, port, small files and processes, all by one seed. TLS is a hello.
//!
//! `below` has what is exchanged, each under the name and with the interface of what it stands for; `host` is written
//! from docs/protocol; `oracle` has the rules.
#![allow(dead_code, reason = "the agent's files have more than is simulated")]
// As in the tests: a history that goes wrong is to end with a panic.
#![allow(clippy::unwrap_used)]

// What ships.
#[path = "../../src/agent/mod.rs"]
mod agent;
#[path = "../../src/built.rs"]
mod built;
#[path = "../../src/config"]
mod config {
    pub(crate) mod known_host;
    pub(crate) mod policy;
}
#[path = "../../src/devlxd"]
mod devlxd {
    pub(crate) mod admission;
    pub(crate) mod server;
    #[path = "../../sim/src/below/socket.rs"]
    pub(crate) mod socket;
}
#[path = "../../src/hostapi"]
mod hostapi {
    pub(crate) mod denied;
    pub(crate) mod events;
    #[path = "exec"]
    pub(crate) mod exec {
        mod arrival;
        #[path = "../../../sim/src/below/execute.rs"]
        mod execute;
        mod start;
        pub(crate) use arrival::arrive;
        pub(crate) use start::start;
    }
    #[path = "../../sim/src/below/mounts.rs"]
    pub(crate) mod mounts;
    pub(crate) mod operations;
    #[path = "../../sim/src/below/port_forward.rs"]
    pub(crate) mod port_forward;
    pub(crate) mod server;
    #[path = "../../sim/src/below/sftp.rs"]
    pub(crate) mod sftp;
}
#[path = "../../src/net"]
mod net {
    pub(crate) mod host_call;
    #[path = "../../sim/src/below/relay.rs"]
    pub(crate) mod relay;
    pub(crate) mod serve;
    #[path = "../../sim/src/below/stream.rs"]
    pub(crate) mod stream;
    pub(crate) mod tickets;
    #[path = "../../sim/src/below/tls.rs"]
    pub(crate) mod tls;
    #[path = "../../sim/src/below/tls_error.rs"]
    pub(crate) mod tls_error;
    pub(crate) mod upgrade;
    pub(crate) mod websocket;
}
#[path = "../../src/options.rs"]
mod options;
#[path = "../../src/print.rs"]
mod print;
#[path = "../../src/runtime"]
mod runtime {
    #[path = "../../sim/src/below/runtime/children.rs"]
    pub(crate) mod children;
    pub(crate) mod clock;
    pub(crate) mod digest;
    #[path = "../../sim/src/below/runtime/log.rs"]
    pub(crate) mod log;
    pub(crate) mod permits;
    #[path = "../../sim/src/below/runtime/random.rs"]
    pub(crate) mod random;
    #[path = "../../sim/src/below/runtime/reactor.rs"]
    pub(crate) mod reactor;
    #[path = "../../sim/src/below/runtime/run.rs"]
    pub(crate) mod run;
    pub(crate) mod run_dir;
    #[path = "../../sim/src/below/runtime/small_files.rs"]
    pub(crate) mod small_files;
    pub(crate) mod wake;
    pub(crate) mod yield_budget;
}
#[path = "../../src/status"]
mod status {
    #[path = "../../sim/src/below/port.rs"]
    pub(crate) mod port;
    pub(crate) mod pump;
    pub(crate) mod search;
    pub(crate) mod status_file;
}

// What is exchanged.
mod below;
use below::{guest_path, handover, sys, system, transport, workers};

// What is around it.
mod faults;
mod guest;
mod host;
mod machine;
mod oracle;
mod story;
mod world;

pub use machine::dice::Dice;
pub use machine::executor::{MILLI, Micros, SECOND};
pub use story::{day, tell, tell_by};
pub use world::Outcome;
