//! What most modules use.

pub use std::collections::BTreeSet;
pub use std::ffi::OsStr;
pub use std::fs::{self, File};
pub use std::io::{Read, Write};
pub use std::os::unix::fs::{PermissionsExt, symlink};
pub use std::os::unix::net::UnixStream;
pub use std::path::{Path, PathBuf};
pub use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
pub use std::sync::LazyLock;
pub use std::thread;
pub use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub use clap::Args;
pub use mote_checks::{
    Reason, Table, Try, Verdict, has, line, line_with, markdown, noise, qmp, reasons, same,
};
pub use serde::{Deserialize, Serialize};
pub use serde_json::{Value, json};

pub use crate::report::Line;
pub use crate::run::{Background, Output, Terminal};
pub use crate::server::{Agent, Options, Server};
pub use crate::world::{
    BIG, BOOTING, BRIDGE, Seen, VM, World, checksum, first_word, put, read, round,
};
pub(crate) use crate::{checks, setup};
