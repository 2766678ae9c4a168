//! Differences between a copy and its original, reported once at the end.

use std::path::Path;

use anyhow::Result;

use super::session::local;
use super::sftp::wire::Attrs;
use crate::common::printable::complain;

/// Names for one line of stderr. A tree may have any number.
#[derive(Debug, Default)]
struct Names {
    first: Vec<String>,
    more: usize,
}

impl Names {
    const SHOWN: usize = 8;

    fn add(&mut self, name: String) {
        if self.first.len() < Self::SHOWN {
            self.first.push(name);
        } else {
            self.more += 1;
        }
    }

    fn complain(&self, what: &str) {
        let more = if self.more > 0 { format!(" and {} more", self.more) } else { String::new() };
        if !self.first.is_empty() {
            complain(&format!("{what}: {}{more}", self.first.join(", ")));
        }
    }
}

/// The differences of one push or pull, reported when dropped.
#[derive(Debug, Default)]
pub struct Unlike {
    special: Names,
    bits: Names,
}

impl Drop for Unlike {
    fn drop(&mut self) {
        self.special.complain("skipped, because only files, directories and links can be copied");
        self.bits.complain("the guest did not set setuid, setgid or sticky as in the original");
    }
}

/// Mode bits that agents may drop: setuid, setgid, sticky.
const SPECIAL_BITS: u32 = 0o7000;

impl Unlike {
    pub(super) fn skip(&mut self, name: String) {
        self.special.add(name);
    }

    /// Notes whether a pushed file has its special bits. Calls the server only if one is set.
    pub(super) fn check(
        &mut self,
        wanted: u32,
        target: &Path,
        ask: impl FnOnce() -> Result<Attrs>,
    ) -> Result<()> {
        let is_kept = |attrs: Attrs| attrs.permissions().is_some_and(|mode| mode == wanted);
        if wanted & SPECIAL_BITS != 0 && !is_kept(ask()?) {
            self.bits.add(format!("{} ({wanted:o})", local(target)));
        }
        Ok(())
    }
}
