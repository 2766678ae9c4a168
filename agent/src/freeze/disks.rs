//! Mount points of the file systems that can be frozen.

use std::ffi::{CStr, CString};
use std::io;
use std::path::Path;

use mote_core::freeze::filesystems::mounted;
use mote_core::report::proc::mounts::unescape;

use crate::runtime::read_bounded;

const MOUNTS: u64 = 1 << 24;

/// Mount points in the order of freezing, the reverse of mounting.
#[derive(Debug, Default)]
pub(super) struct Points {
    pub(super) all: Vec<CString>,
    /// Mount points that another mount covers, each after a space. They are not opened, because
    /// their path may lead into a file system that hangs.
    pub(super) covered: String,
}

impl Points {
    #[inline(never)] // its size
    pub(super) fn read(root: &Path) -> io::Result<Self> {
        let mounts = read_bounded(&root.join("proc/self/mountinfo"), MOUNTS)?;
        let mut points = Self::default();
        for system in mounted(&mounts) {
            let point = CString::new(unescape(system.point).collect::<Vec<_>>())?;
            if system.is_covered {
                add(&mut points.covered, &point);
            } else {
                points.all.push(point);
            }
        }
        Ok(points)
    }
}

#[inline(never)] // its size
pub(super) fn add(list: &mut String, point: &CStr) {
    list.push(' ');
    list.push_str(&point.to_string_lossy());
}

#[inline(never)] // its size
pub(super) fn about(what: &CStr, why: &str) -> String {
    let mut text = what.to_string_lossy().into_owned();
    text.push_str(": ");
    text.push_str(why);
    text
}
