//! The agent under deterministic simulation. This crate compiles the agent's own files and replaces
//! the system below them: virtual time, sockets, port, small files and processes, all determined by
//! one seed. TLS is reduced to a hello.
//!
//! `below` has the replacements, each with name and interface of the original; `programs` are what
//! the agent starts; `host` is written from docs/protocol; `oracle` has the rules.

// The unit tests in the agent's files need a real system, so as a test this crate is empty.
#![cfg(not(test))]
#![allow(missing_docs, reason = "code of tests: the name of an item says what it is")]
#![allow(dead_code, reason = "the agent's files have more than is simulated")]
#![allow(
    clippy::needless_pass_by_ref_mut,
    clippy::default_constructed_unit_structs,
    clippy::unused_async,
    clippy::unused_self,
    reason = "a replacement has the interface of the original"
)]
// Code of tests: a failed scenario panics.
#![allow(clippy::unwrap_used)]

/// The agent's files, except those that `below` replaces.
#[path = "../../src"]
mod shipped {
    pub(crate) mod agent;
    pub(crate) mod built;
    pub(crate) mod config {
        pub(crate) mod contents;
        pub(crate) use crate::below::absent as files;
        pub(crate) mod known_host;
        pub(crate) mod policy;
    }
    pub(crate) mod devlxd {
        pub(crate) mod admission;
        pub(crate) mod server;
        pub(crate) use crate::transport as socket;
    }
    pub(crate) mod handover {
        #[path = "../../sim/src/below/handover/mod.rs"]
        mod exchanged;
        pub(crate) mod incumbent;
        pub(crate) mod lock;
        pub(crate) mod others;
        pub(crate) mod view;
        pub(crate) use exchanged::{lock_file, processes, reexec};
    }
    pub(crate) mod hostapi {
        pub(crate) mod events;
        pub(crate) mod exec {
            mod execute;
            use crate::below::absent as pty;
            mod pump;
            mod start;
            pub(crate) use start::{arrive, start};
        }
        pub(crate) mod mounts;
        pub(crate) mod operations;
        pub(crate) mod port_forward;
        pub(crate) mod server;
        pub(crate) mod sftp;
    }
    pub(crate) mod leave;
    pub(crate) mod life;
    pub(crate) mod net {
        pub(crate) mod host_call;
        pub(crate) mod relay;
        pub(crate) mod serve;
        #[path = "../../sim/src/below/net/stream.rs"]
        pub(crate) mod stream;
        pub(crate) mod tickets;
        #[path = "../../sim/src/below/net/tls.rs"]
        pub(crate) mod tls;
        pub(crate) mod websocket;
        pub(crate) use tls as tls_error;
        pub(crate) use tls as tls_types;
    }
    pub(crate) mod options;
    pub(crate) mod print;
    pub(crate) mod runtime {
        pub(crate) mod children;
        pub(crate) mod clock;
        pub(crate) mod digest;
        pub(crate) mod io_error;
        #[path = "../../sim/src/below/runtime/log.rs"]
        pub(crate) mod log;
        pub(crate) mod notify;
        pub(crate) mod permits;
        pub(crate) use crate::below::absent as random;
        #[path = "../../sim/src/below/runtime/reactor.rs"]
        pub(crate) mod reactor;
        #[path = "../../sim/src/below/runtime/run.rs"]
        pub(crate) mod run;
        pub(crate) mod run_dir;
        pub(crate) mod wake;
        pub(crate) mod yield_budget;

        pub(crate) use children::{Child, Ended};
        pub(crate) use clock::{
            LATER_LOOK_INTERVAL, LOOK_INTERVAL, look_for, look_interval, now, sleep, until, within,
        };
        pub(crate) use digest::{hex, sha256};
        pub(crate) use io_error::io_error;
        pub(crate) use permits::{Permit, Semaphore};
        pub(crate) use reactor::Async;
        pub(crate) use run::Task;
        pub(crate) use wake::{NEVER, Signal};
        pub(crate) use yield_budget::Fair;

        pub(crate) use crate::below::here::{read_bounded, read_if_there, text_of, write_small};
    }
    pub(crate) mod start {
        pub(crate) mod listen;
        use crate::below::absent as look;
        pub(crate) mod prepare;
        pub(crate) use crate::below::absent as sandbox;
        pub(crate) mod wait;
    }
    pub(crate) mod status {
        #[path = "../../sim/src/below/port.rs"]
        pub(crate) mod port;
        pub(crate) mod pump;
        pub(crate) mod search;
        pub(crate) mod status_file;
        pub(crate) mod without_vsock;
    }
    pub(crate) mod workers {
        pub(crate) use crate::below::absent as report;
        pub(crate) mod run;
    }
}
use shipped::{
    agent, built, config, devlxd, handover, hostapi, leave, life, net, options, print, runtime,
    start, status, workers,
};

/// Files of `sys` that are not replaced.
#[path = "../../src/sys/plan.rs"]
mod plan;

// Replacements.
mod below;
use below::{
    absent as guest_path, absent as hotplug, absent as ready_when, first_boot, resume, sys, system,
    transport,
};

// Surroundings.
mod faults;
mod guest;
mod host;
mod machine;
mod oracle;
mod programs;
mod runner;
mod scenario;
mod sim_prelude;
mod supervisor;

pub use machine::{Dice, MILLI, Micros, SECOND};
pub use runner::{day, run_seed, run_with};
pub use scenario::Outcome;
