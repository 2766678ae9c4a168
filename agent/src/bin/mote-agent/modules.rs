//! Kernel modules without modprobe: an initramfs may have the files and not the tool.

use std::fs::{File, read_to_string};
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::system::{finit_module, uname};

use crate::clock::look_for;
use crate::log;

/// Let the kernel unpack a compressed module (Linux 5.17).
const COMPRESSED: i32 = 4;
/// How long to wait for `/dev/vsock` (P§1.3).
const DEVICE: Duration = Duration::from_secs(5);

/// Loads a module and what it needs. Nothing to do if it is there already or built in.
///
/// # Errors
/// Why not, for people.
pub(crate) fn load(root: &Path, name: &str) -> Result<(), String> {
    if is_loaded(root, name) {
        return Ok(());
    }
    let release = uname().release().to_string_lossy().into_owned();
    let directory = root.join("lib/modules").join(release);
    let built_in = read_to_string(directory.join("modules.builtin")).unwrap_or_default();
    if built_in.lines().any(|line| is_named(line, name)) {
        return Ok(());
    }
    let path = directory.join("modules.dep");
    let dependencies = read_to_string(&path)
        .map_err(|error| format!("module {name}: {}: {error}", path.display()))?;
    // A module's line names all it needs, the deepest last (depmod(8)).
    let line = dependencies
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(file, _)| is_named(file, name))
        .ok_or_else(|| format!("module {name}: not in {}", path.display()))?;
    for file in line.1.split_whitespace().rev().chain([line.0]) {
        insert(&directory.join(file)).map_err(|why| format!("module {name}: {file}: {why}"))?;
    }
    log::debug(format_args!("loaded module {name}"));
    Ok(())
}

fn insert(path: &Path) -> Result<(), String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let compressed = path.extension().is_some_and(|extension| extension != "ko");
    match finit_module(&file, c"", if compressed { COMPRESSED } else { 0 }) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

fn is_loaded(root: &Path, name: &str) -> bool {
    root.join("sys/module").join(name.replace('-', "_")).exists()
}

/// Whether `path` is that module's file; `-` and `_` are the same.
fn is_named(path: &str, name: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    let stem = file.split('.').next().unwrap_or(file);
    stem.replace('-', "_") == name.replace('-', "_")
}

/// Makes vsock usable: its virtio transport, and `/dev/vsock`.
///
/// # Errors
/// Why not, for people.
pub(crate) fn load_vsock(root: &Path) -> Result<(), String> {
    let device = root.join("dev/vsock");
    let loaded = load(root, "vmw_vsock_virtio_transport");
    if device.exists() {
        return Ok(());
    }
    loaded?;
    look_for(DEVICE, || device.exists().then_some(()))
        .ok_or_else(|| format!("{} did not appear", device.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_matched_like_modprobe_does() {
        assert!(is_named("kernel/net/9p/9pnet_virtio.ko.xz", "9pnet-virtio"));
        assert!(is_named("kernel/fs/fuse/virtiofs.ko", "virtiofs"));
        assert!(!is_named("kernel/fs/fuse/virtiofs.ko", "virtio"));
    }

    #[test]
    fn what_the_kernel_has_needs_no_file() {
        let root = crate::share::scratch("modules");
        std::fs::create_dir_all(root.join("sys/module/some_thing")).unwrap();
        assert_eq!(load(&root, "some-thing"), Ok(()));
        let why = load(&root, "other").unwrap_err();
        assert!(why.contains("modules.dep"), "{why}");
    }
}
