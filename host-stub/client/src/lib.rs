//! A client of guest agents that calls them as LXD and Incus do. It shares no code with the agent,
//! so that the two cannot agree on a mistake.
//!
//! ```text
//! exec      commands in the guest      files   SFTP      report   state and metrics
//! daemon    queries to mote-host's daemon
//! agent     calls to an agent
//! instance  the model of an instance, and its files
//! net       TLS, HTTP, time limits     common  clock, text, random numbers
//! ```

#![forbid(unsafe_code)]
#![allow(missing_debug_implementations, missing_docs, reason = "this crate is internal")]
#![allow(clippy::disallowed_methods, reason = "the modules below that read from guests deny them")]

#[deny(clippy::disallowed_methods)]
pub mod agent {
    pub mod call_failure;
    pub mod client;
    pub mod websocket;
}
pub mod common {
    pub mod clock;
    pub mod limits;
    pub mod printable;
    pub mod random;
    pub mod whole_file;
}
pub mod daemon;
#[deny(clippy::disallowed_methods)]
pub mod exec {
    pub mod output;
    pub mod request;
    pub mod run;
    pub mod sockets;
    pub mod terminal;
}
#[deny(clippy::disallowed_methods)]
pub mod files {
    pub mod args;
    pub mod commands;
    pub mod local_directory;
    pub mod session;
    pub mod sftp {
        pub mod client;
        pub mod transfer;
        pub mod wire;
    }
    pub mod tree;
}
pub mod instance;
pub mod net {
    pub mod http;
    pub mod pump;
    pub mod slots;
    pub mod stream;
    pub mod tls;
}
#[deny(clippy::disallowed_methods)]
pub mod report;

pub use agent::call_failure::{CallFailure, FailedCall};
pub use agent::client::{Agent, connecting};
pub use common::printable::{self, complain};
pub use common::{clock, limits, random};
pub use instance::{Channel, Flavour, Instance, Vsock, store};
pub use net::http::Message;
pub use net::stream::{Limit, Timed};
