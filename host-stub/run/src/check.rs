//! Checks the arguments before anything is started, so that an error names the option.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use rustix::fs::{Access, access};

use super::args::{JobArgs, MachineKind, Reports, VmArgs};
use mote_client::common::printable::word;
use mote_client::files::local_directory::{Missing, Target, place, report_place};
use mote_client::printable;
use mote_vm::recipe::root_disk;

/// The beginning of a qcow2 image.
const QCOW2: [u8; 4] = *b"QFI\xfb";

pub(crate) fn job(job: &JobArgs) -> Result<()> {
    if job.command.first().is_some_and(String::is_empty) {
        bail!("the command's name is empty");
    }
    for (from, _) in &job.push {
        let path = Path::new(from);
        if !fs::metadata(path).with_context(|| at("push", path))?.is_dir() {
            readable("push", path)?;
        }
    }
    for (_, to) in &job.pull {
        let path = Path::new(to);
        let into = if path.is_dir() { path } else { above(path) };
        directory(into).with_context(|| at("pull", path))?;
        place(Path::new("/file"), path, Target::Any, Missing::Refuse)
            .with_context(|| at("pull", path))?;
    }
    Ok(())
}

pub(crate) fn outputs(args: &Reports) -> Result<()> {
    let Reports { console, log, result, junit, .. } = args;
    for (option, path) in [("console", console), ("log", log), ("result", result), ("junit", junit)]
    {
        if let Some(path) = path {
            writable(path).with_context(|| at(option, path))?;
            report_place(path).with_context(|| at(option, path))?;
        }
    }
    // QEMU truncates and writes the console's file, which this process reads.
    if let Some(path) = console
        && fs::metadata(path).is_ok_and(|about| !about.is_file())
    {
        let console = at("console", path);
        bail!("{console}: this is not a regular file; use -v to see the console on stderr");
    }
    Ok(())
}

/// Returns an error if a file of the VM cannot be read. QEMU's messages are less clear.
pub(crate) fn vm(args: &VmArgs) -> Result<()> {
    let (kernels, initrds) = (args.kernel.len(), args.initrd.len());
    if kernels == 0 && args.disk.is_none() {
        bail!("nothing to boot: give --kernel FILE or --disk FILE");
    }
    if initrds > 1 && initrds != kernels {
        bail!("{kernels} kernels, but {initrds} initramfs: give one for all, or one for each");
    }
    let hardware = &args.hardware;
    if let Some((arch, firmware)) = hardware.arch.and_then(|arch| Some((arch, arch.firmware()?)))
        && kernels == 0
        && hardware.qemu_arg.is_empty()
    {
        let arch = word(arch);
        bail!(
            "QEMU has no firmware for {arch}: --kernel FILE is needed, or --qemu-arg '{firmware}"
        );
    }
    if hardware.machine == MachineKind::Microvm && kernels == 0 {
        bail!("--machine microvm has no firmware that boots a disk: --kernel FILE is needed");
    }
    let of = |option, files: &'_ [std::path::PathBuf]| {
        files.iter().try_for_each(|file| readable(option, file).map(drop))
    };
    of("kernel", &args.kernel)?;
    of("initrd", &args.initrd)?;
    of("mote", args.mote.as_slice())?;
    of("user-data", args.user_data.as_slice())?;
    if let Some(said) = &args.disk {
        disk(said)?;
    }
    for share in &args.share {
        fs::read_dir(&share.source).with_context(|| at("share", &share.source))?;
    }
    Ok(())
}

/// Refuses a qcow2 image that would be booted as raw, which fails without a message. The format is
/// never detected: a guest could write a qcow2 header to a raw disk.
fn disk(said: &str) -> Result<()> {
    let (file, format) = root_disk(said)?;
    let mut start = [0; QCOW2.len()];
    let is_read = readable("disk", &file)?.read_exact(&mut start).is_ok();
    if is_read && start == QCOW2 && format == "raw" && !said.ends_with("=raw") {
        let said = printable::name(said);
        bail!(
            "--disk {said}: the file is a qcow2 image, but its name does not say so: use \
             {said}=qcow2, or {said}=raw"
        );
    }
    Ok(())
}

fn at(option: &str, path: &Path) -> String {
    format!("--{option} {}", printable::name(path))
}

/// Opens a file. Its type is checked first, because opening a pipe would wait for a writer.
fn readable(option: &str, file: &Path) -> Result<File> {
    let kind = fs::metadata(file).with_context(|| at(option, file))?.file_type();
    if kind.is_dir() {
        bail!("{}: this is a directory", at(option, file));
    }
    if kind.is_fifo() || kind.is_socket() {
        bail!("{}: this is a pipe or a socket, not a regular file", at(option, file));
    }
    File::open(file).with_context(|| at(option, file))
}

/// Returns an error if a file could not be written. Creates and changes nothing, so that a refused
/// run leaves the results of the last one.
fn writable(path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Ok(about) if about.is_dir() => bail!("this is a directory"),
        Ok(_) => Ok(access(path, Access::WRITE_OK)?),
        Err(_) => directory(above(path)),
    }
}

fn above(path: &Path) -> &Path {
    match path.parent() {
        Some(above) if above != Path::new("") => above,
        _ => Path::new("."),
    }
}

fn directory(path: &Path) -> Result<()> {
    if !fs::metadata(path).with_context(|| printable::name(path))?.is_dir() {
        bail!("{} is not a directory", printable::name(path));
    }
    access(path, Access::WRITE_OK | Access::EXEC_OK).with_context(|| printable::name(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_qcow2_images_unless_a_format_is_given() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        for name in ["disk.img", "disk.qcow2"] {
            fs::write(path(name), b"QFI\xfb\0\0\0\x03").unwrap();
        }
        fs::write(path("raw.img"), b"\xfbIFQ").unwrap();
        fs::write(path("short.img"), b"QFI").unwrap();
        let error = disk(&path("disk.img")).unwrap_err().to_string();
        assert!(error.contains(&format!("use {}=qcow2, or", path("disk.img"))), "{error}");
        for said in ["disk.qcow2", "disk.img=qcow2", "disk.img=raw", "raw.img", "short.img"] {
            disk(&path(said)).unwrap();
        }
        assert!(disk(&path("absent")).unwrap_err().to_string().starts_with("--disk "));
    }
}
