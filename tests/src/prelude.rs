//! What most tests use.

pub use std::collections::{BTreeMap, BTreeSet};
pub use std::fs::{self, File};
pub use std::io::{BufRead, BufReader, Read, Write};
pub use std::os::unix::ffi::OsStrExt;
pub use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
pub use std::os::unix::net::{UnixListener, UnixStream};
pub use std::os::unix::process::CommandExt;
pub use std::path::{Path, PathBuf};
pub use std::process::{Child, Command, Stdio};
pub use std::thread;
pub use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub use rustix::process::Signal;
pub use serde_json::{Value, json};

pub use crate::{
    AS_AGENT, BACK, BOOT, Client, Column, Guest, Host, Late, MOTE_BOOT, NAME, Noise, Outage, Pair,
    Private, Process, Scratch, Share, Spec, Terminal, Vm, World, agent, attempt, bounded, by_root,
    contains, copy_program, cost, exits, fed, fifo, found, has_programs, in_private, in_time,
    is_root, kill, noise, output, pages, patient, plain, private, proc, program, put, skipped,
    slowdown, tool, until, wait,
};
