//! What most of the simulation uses.

pub(crate) use std::cell::{Cell, RefCell};
pub(crate) use std::collections::{BTreeMap, VecDeque};
pub(crate) use std::io;
pub(crate) use std::path::{Path, PathBuf};
pub(crate) use std::rc::{Rc, Weak};
pub(crate) use std::task::{Context, Poll, Waker};
pub(crate) use std::time::Duration;

pub(crate) use mote_core::flavour::Flavour;
pub(crate) use mote_core::status::State;
pub(crate) use rustix::io::Errno;

pub(crate) use crate::agent::Agent;
pub(crate) use crate::below::here::{Here, here};
pub(crate) use crate::machine::{
    AgentProcess, Broken, Certificate, Dice, Hello, Kernel, MILLI, Micros, Net, Place, Process,
    SECOND, Signal, Sim, Stage, Stream, Timer, Zone, either, net, sleep, within,
};
pub(crate) use crate::oracle::{Before, Oracle, Word};
