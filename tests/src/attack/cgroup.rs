//! A memory cgroup of 8 MiB for an agent, including the kernel's memory for it, if this machine
//! allows one.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::Pair;

const LIMIT: u64 = 8 * 1024 * 1024;
/// Limit until the kernel has removed its last process.
const EMPTY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Cgroup(Option<PathBuf>);

impl Cgroup {
    /// Creates one with a limit; none without the privilege or with `MOTE_CGROUP=none`.
    #[expect(clippy::new_without_default, reason = "it touches the system")]
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let unwanted = std::env::var_os("MOTE_CGROUP").is_some();
        let name = format!("mote-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        for (root, limit) in
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
        {
            let path = Path::new(root).join(&name);
            if unwanted || fs::create_dir(&path).is_err() {
                continue;
            }
            if fs::write(path.join(limit), LIMIT.to_string()).is_ok() {
                return Self(Some(path));
            }
            let _gone = fs::remove_dir(&path);
        }
        Self(None)
    }

    pub fn start(&self, config: &[&str]) -> Pair {
        let enter = self.0.as_ref().map_or_else(String::new, |path| {
            format!("echo $$ > {}/cgroup.procs; ", path.display())
        });
        Pair::start_by(&["sh", "-c", &format!("{enter}exec \"$0\" \"$@\"")], "lxd", config)
    }

    /// Returns the cgroup's peak, as text.
    pub fn peak(&self) -> String {
        let Some(path) = &self.0 else { return "no cgroup".into() };
        let files = ["memory.max_usage_in_bytes", "memory.peak"];
        let text = files.iter().find_map(|file| fs::read_to_string(path.join(file)).ok());
        let bytes = text.and_then(|text| text.trim().parse::<u64>().ok());
        bytes.map_or("unknown".into(), |bytes| format!("{} kB", bytes / 1024))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let Some(path) = &self.0 else { return };
        let end = Instant::now() + EMPTY;
        while fs::remove_dir(path).is_err() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
