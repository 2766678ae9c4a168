//! Loads kernel modules without modprobe, which an initramfs may lack.

use std::ffi::{CStr, CString};
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::system::{finit_module, uname};

use crate::built;
use crate::runtime::{is_there, log, look_for, read_text, text_of};
use crate::sys::file::{self, OFlags};
use crate::system::devices;
use crate::system::devices::{Device, Kind, VSOCK, entries};

/// `MODULE_INIT_COMPRESSED_FILE`: the kernel decompresses the module (Linux 5.17).
const COMPRESSED: i32 = 4;
/// The virtio transport of vsock; it depends on the rest of vsock.
const VSOCK_DRIVER: &str = "vmw_vsock_virtio_transport";
/// The message for a VM without vsock.
const NO_DEVICE: &str = "no vsock device in this VM: add one (QEMU's vhost-vsock-pci)";
/// Maximum wait for `/dev/vsock`.
const VSOCK_NODE_TIMEOUT: Duration = Duration::from_secs(5);

/// Loads a module and its dependencies, unless it is loaded or built in. Errors: no `modules.dep`,
/// no such module in it, or the kernel's reason; the message names the module and has advice.
pub(crate) fn load(root: &Path, name: &str) -> Result<(), String> {
    if is_loaded(root, name) {
        return Ok(());
    }
    let release = uname().release().to_string_lossy().into_owned();
    let directory = root.join("lib/modules").join(&release);
    let built_in = text_of(&directory, "modules.builtin");
    if built_in.lines().any(|line| is_named(line, name)) {
        return Ok(());
    }
    let path = directory.join("modules.dep");
    let missing = |why: &dyn std::fmt::Display| {
        let path = path.display();
        format!("module {name} is missing: put it into the image ({path}: {why})")
    };
    let dependencies = read_text(&path).map_err(|error| match another_kernel(root, &release) {
        Some(why) => format!("module {name} is missing: {why}"),
        None => missing(&error),
    })?;
    let line = dependencies
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(file, _)| is_named(file, name))
        .ok_or_else(|| missing(&"not there"))?;
    let options = text_of(root, "proc/cmdline");
    for file in line.1.split_ascii_whitespace().rev().chain([line.0]) {
        // The kernel would read and check the whole file before it reports EEXIST.
        if !is_loaded(root, stem(file)) {
            insert(&directory.join(file), &parameters(&options, stem(file)))
                .map_err(|error| format!("module {name}: {file}: {error}"))?;
        }
    }
    log::debug(format_args!("loaded module {name}"));
    Ok(())
}

/// Returns why modules of this kernel, `release`, are missing if another kernel's exist: the image
/// has a newer kernel than the booted one, or this is a chroot.
fn another_kernel(root: &Path, release: &str) -> Option<String> {
    if !built::STATE {
        // The smallest build omits this check.
        return None;
    }
    let modules = root.join("lib/modules");
    if is_there(&modules, release) {
        return None;
    }
    let other = entries(&modules).pop()?;
    let (modules, other) = (modules.display(), other.file_name()?.display());
    Some(format!("this kernel is {release}, but {modules} has modules for {other}"))
}

/// Loads the bus's driver, then modules that may be needed. Only logs a failure: a module may be
/// built in without being listed, and the code that needs it reports what is missing.
pub(crate) fn prepare(root: &Path, names: &[&str]) {
    let mut loaded = load_bus(root);
    let mut names = names.iter();
    loop {
        if let Err(why) = loaded {
            log::debug(format_args!("{why}"));
        }
        let Some(name) = names.next() else { return };
        loaded = load(root, name);
    }
}

/// Loads the driver for virtio's bus: PCI, or virtio-mmio if PCI has no virtio devices. Micro VMs
/// have virtio-mmio, whose devices are visible only with its driver.
fn load_bus(root: &Path) -> Result<(), String> {
    if devices::waits_on_pci(root, None) {
        load(root, "virtio_pci")?;
    }
    if entries(&root.join("sys/bus/virtio/devices")).is_empty() {
        load(root, "virtio_mmio")?;
    }
    Ok(())
}

/// Loads a device's driver, if it has none; returns the device's stage: absent or driven.
/// Errors: why the device still has no driver, with advice.
pub(crate) fn drive(root: &Path, kind: &Kind, what: &str, driver: &str) -> Result<Device, String> {
    let mut loaded = load_bus(root);
    if devices::find(root, kind) == Device::Bus {
        loaded = load(root, driver);
    }
    match devices::find(root, kind) {
        stage @ (Device::Absent | Device::Driven) => Ok(stage),
        Device::Pci | Device::Bus => Err(undriven(what, driver, loaded)),
    }
}

/// Returns the message for a device without a driver; `loaded`: the result of loading it.
fn undriven(what: &str, driver: &str, loaded: Result<(), String>) -> String {
    let why = loaded.err().unwrap_or("it is loaded, but does not bind".into());
    format!("{what} has no driver ({driver}): {why}")
}

/// Returns a module's parameters on the kernel's command line, which lists a micro VM's devices.
fn parameters(line: &str, name: &str) -> CString {
    let mut all = Vec::new();
    for word in line.split_ascii_whitespace() {
        let parameter = word.split_once('.').filter(|(module, _)| is_named(module, name));
        if let Some((_, parameter)) = parameter {
            all.extend_from_slice(parameter.as_bytes());
            all.push(b' ');
        }
    }
    CString::new(all).unwrap_or_default()
}

fn insert(path: &Path, parameters: &CStr) -> io::Result<()> {
    let file = file::open(path, OFlags::RDONLY)?;
    let compressed = path.extension().is_some_and(|extension| extension != "ko");
    match finit_module(&file, parameters, if compressed { COMPRESSED } else { 0 }) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn is_loaded(root: &Path, name: &str) -> bool {
    is_there(&root.join("sys/module"), &name.replace('-', "_"))
}

/// Returns whether `path` is that module's file; `-` and `_` are equal in names.
fn is_named(path: &str, name: &str) -> bool {
    stem(path).replace('-', "_") == name.replace('-', "_")
}

/// Returns the name of the module in this file.
fn stem(path: &str) -> &str {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file)
}

/// Whether to wait for `/dev/vsock` once its driver is loaded (P§1.3).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeWait {
    Timeout,
    /// Look only once, because the caller retries.
    None,
}

/// Loads the virtio transport of vsock and checks for `/dev/vsock`. Returns why vsock may not work
/// even though the node exists: no device, or no driver bound to it.
/// Errors: `/dev/vsock` is missing: the reason, with advice.
pub(crate) fn load_vsock(root: &Path, wait: NodeWait) -> Result<Option<String>, String> {
    let device = root.join("dev/vsock");
    let bus = load_bus(root);
    let loaded = load(root, VSOCK_DRIVER).and(bus);
    if file::exists(&device) {
        return Ok(doubt(root, loaded));
    }
    if loaded.is_err() {
        return Err(doubt(root, loaded).unwrap_or_default());
    }
    let limit = if wait == NodeWait::Timeout { VSOCK_NODE_TIMEOUT } else { Duration::ZERO };
    look_for(limit, || file::exists(&device).then_some(None)).ok_or_else(|| {
        format!(
            "the vsock driver is loaded, but {} is missing: mount devtmpfs on /dev",
            device.display()
        )
    })
}

/// Returns why vsock may not work, from its device's stage and the result of loading the driver.
fn doubt(root: &Path, loaded: Result<(), String>) -> Option<String> {
    if !built::STATE {
        // The smallest build omits this check.
        return loaded.err().map(|why| format!("no vsock driver: {why}"));
    }
    match (devices::find(root, &VSOCK), loaded) {
        (Device::Driven, Ok(())) => None,
        (Device::Driven, Err(why)) => Some(format!("no vsock driver: {why}")),
        (Device::Absent, Ok(())) => Some(NO_DEVICE.into()),
        (Device::Absent, Err(why)) => {
            Some(format!("{NO_DEVICE}; its driver is missing, too: {why}"))
        }
        (Device::Pci | Device::Bus, loaded) => {
            Some(undriven("a vsock device", VSOCK_DRIVER, loaded))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_file_names_like_modprobe() {
        assert!(is_named("kernel/net/9p/9pnet_virtio.ko.xz", "9pnet-virtio"));
        assert!(is_named("kernel/fs/fuse/virtiofs.ko", "virtiofs"));
        assert!(!is_named("kernel/fs/fuse/virtiofs.ko", "virtio"));
    }

    #[test]
    fn finds_parameters_like_modprobe() {
        let line = "quiet virtio_mmio.device=512@0xfeb00e00:12 virtio.x=1 virtio-mmio.device=a.b\n";
        let found = parameters(line, "virtio_mmio");
        assert_eq!(found.as_c_str(), c"device=512@0xfeb00e00:12 device=a.b ");
        assert_eq!(parameters(line, "quiet").as_c_str(), c"");
    }

    #[test]
    fn reports_modules_of_another_kernel() {
        let root = crate::runtime::scratch("modules-of-another");
        let why = || load(&root, "other").unwrap_err();
        std::fs::create_dir_all(root.join("lib/modules/0.1-other")).unwrap();
        let release = uname().release().to_string_lossy().into_owned();
        let modules = root.join("lib/modules");
        let expected = format!(
            "module other is missing: this kernel is {release}, but {} has modules for 0.1-other",
            modules.display()
        );
        assert_eq!(why(), expected);
        // If the kernel's own directory exists, the missing file belongs there.
        std::fs::create_dir_all(modules.join(release)).unwrap();
        assert!(why().contains("modules.dep: No such file"), "{}", why());
    }

    #[test]
    fn reports_a_missing_vsock_driver_despite_its_node() {
        let root = crate::runtime::scratch("vsock-driver");
        let put = |path: &str, text: &str| crate::runtime::put(&root, path, text);
        put("dev/vsock", "");
        put("sys/bus/virtio/devices/virtio1/device", "0x0013\n");
        let release = uname().release().to_string_lossy().into_owned();
        put(&format!("lib/modules/{release}/modules.dep"), "kernel/net/vmw_vsock/vsock.ko:\n");
        let doubt = || load_vsock(&root, NodeWait::None).unwrap().unwrap_or_default();
        let why = doubt();
        let start = "a vsock device has no driver (vmw_vsock_virtio_transport): module \
                     vmw_vsock_virtio_transport is missing: put it into the image (";
        assert!(why.starts_with(start) && why.ends_with("modules.dep: not there)"), "{why}");
        put("sys/module/vmw_vsock_virtio_transport/x", "");
        let why = doubt();
        assert!(why.ends_with("_transport): it is loaded, but does not bind"), "{why}");
        put("sys/bus/virtio/devices/virtio1/driver/x", "");
        assert_eq!(load_vsock(&root, NodeWait::None), Ok(None));
        std::fs::remove_dir_all(root.join("sys/bus")).unwrap();
        // Without PCI, the device may need virtio-mmio.
        let why = doubt();
        assert!(why.starts_with(NO_DEVICE), "{why}");
        assert!(why.contains("module virtio_mmio is missing"), "{why}");
        put("sys/module/virtio_mmio/x", "");
        assert_eq!(doubt(), NO_DEVICE);
    }
}
