//! Stores disk sizes after each worker: per disk, 8 bytes of the sysfs identity and 8 of the size,
//! in native order. The last record counts.

use std::path::{Path, PathBuf};

use crate::runtime::run_dir;
use crate::runtime::small_files::{read_bounded, write_small};

/// Longest file, bytes.
const LONGEST: u64 = 1 << 20;

pub(super) struct Sizes {
    path: PathBuf,
    all: Vec<u8>,
}

impl Sizes {
    pub(super) fn read(root: &Path) -> Self {
        let path = root.join(run_dir::SIZES);
        let all = read_bounded(&path, LONGEST).unwrap_or_default();
        Self { path, all }
    }

    pub(super) fn of(&self, id: u64) -> u64 {
        let mut found = 0;
        for note in self.all.chunks_exact(16) {
            if note.starts_with(&id.to_ne_bytes()) {
                found = note.last_chunk().map_or(0, |size| u64::from_ne_bytes(*size));
            }
        }
        found
    }

    pub(super) fn note(&mut self, id: u64, size: u64) {
        self.all.extend_from_slice([id.to_ne_bytes(), size.to_ne_bytes()].as_flattened());
        let _next_time = write_small(&self.path, &self.all);
    }
}
