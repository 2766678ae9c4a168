//! What most tests use.

pub use std::cell::Cell;
pub use std::collections::{BTreeMap, BTreeSet};
pub use std::ffi::OsStr;
pub use std::fmt::Debug;
pub use std::fs::{self, File, OpenOptions, Permissions};
pub use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
pub use std::net::{Shutdown, TcpListener, TcpStream};
pub use std::os::fd::OwnedFd;
pub use std::os::unix::ffi::OsStrExt;
pub use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
pub use std::os::unix::net::{UnixListener, UnixStream};
pub use std::os::unix::process::CommandExt;
pub use std::path::{Path, PathBuf};
pub use std::process::{Child, Command, Output, Stdio};
pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
pub use std::sync::{Arc, LazyLock, Mutex, mpsc};
pub use std::thread::{self, JoinHandle};
pub use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub use mote_checks::{Try, markdown};
pub use rustix::process::Signal;
pub use serde::{Deserialize, Serialize};
pub use serde_json::{Value, json};

pub use crate::{
    AS_AGENT, BACK, BOOT, Client, Column, Guest, Host, Late, MOTE_BOOT, NAME, Noise, Outage, Pair,
    Private, Process, Scratch, Share, Spec, Terminal, Vm, World, agent, attempt, bounded, by_root,
    contains, copy_program, cost, exits, fed, fifo, found, has_programs, in_private, in_time,
    is_root, kill, noise, output, pages, patient, plain, private, proc, program, put, skipped,
    slowdown, source, tool, until, vm, wait, world,
};
