//! Disks in files, by the kernel of this machine (loop devices).

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mote_tests::{Private, Scratch, agent, in_private, skipped};

pub(crate) const MIB: u64 = 1 << 20;
/// Sizes of a disk, MiB: XFS and btrfs want some.
pub(crate) const OLD: u64 = 320;
pub(crate) const NEW: u64 = 500;
/// A table with one partition to the disk's end.
pub(crate) const GPT: &str = "label: gpt\nstart=2048, type=linux\n";

/// Runs a program; its exit code and what it printed.
pub(crate) fn run(program: &str, arguments: &[&OsStr], input: &str) -> (Option<i32>, String) {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect(program);
    // It may need none, and have ended.
    let _unread = child.stdin.take().expect("input").write_all(input.as_bytes());
    let out = child.wait_with_output().expect(program);
    let said = [out.stdout, out.stderr].concat();
    (out.status.code(), String::from_utf8_lossy(&said).into_owned())
}

/// Runs a line of words, and one path.
pub(crate) fn ok(line: &str, path: &Path) -> String {
    let mut words: Vec<&OsStr> = line.split(' ').map(OsStr::new).collect();
    let program = words.remove(0).to_str().unwrap();
    words.push(path.as_os_str());
    let (code, said) = run(program, &words, "");
    assert_eq!(code, Some(0), "{line} {}: {said}", path.display());
    said
}

/// Whether disks can be made here, as the test of this name does once more where nobody else sees its mounts.
pub(crate) fn has_disks(test: &str) -> bool {
    if !in_private(Private::Mounts, test) {
        return false;
    }
    let tools = ["sfdisk", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "losetup", "addpart"];
    let has = |tool: &&str| {
        Command::new(tool).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    };
    let known = fs::read_to_string("/proc/filesystems").unwrap();
    let is_known = ["ext4", "xfs", "btrfs"].iter().all(|kind| known.contains(kind));
    let loops = Command::new("losetup").arg("-f").output().is_ok_and(|out| out.status.success());
    let can = tools.iter().all(has) && is_known && loops;
    if !can {
        skipped("root, loop devices, ext4, xfs, btrfs and the tools that make them");
    }
    can
}

/// The file systems that can be grown here. For ext4 a right is needed that some containers do not have.
pub(crate) fn kinds() -> Vec<&'static str> {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let rights = status.split("CapEff:").nth(1).unwrap().split_whitespace().next().unwrap();
    let has_right = u64::from_str_radix(rights, 16).unwrap() >> 24 & 1 == 1;
    if has_right {
        return vec!["xfs", "btrfs", "ext4"];
    }
    skipped("CAP_SYS_RESOURCE: ext4 does not grow without it");
    vec!["xfs", "btrfs"]
}

/// A disk in a file.
pub(crate) struct Disk {
    pub(crate) file: PathBuf,
    /// As `loop0`.
    pub(crate) name: String,
    pub(crate) points: Vec<PathBuf>,
}

impl Drop for Disk {
    fn drop(&mut self) {
        for point in self.points.iter().rev() {
            let _gone = Command::new("umount").arg(point).status();
        }
        let _gone = Command::new("losetup").arg("-d").arg(self.device()).status();
    }
}

impl Disk {
    /// With sectors of so many bytes, and what sfdisk makes of a script.
    pub(crate) fn new(directory: &Path, name: &str, sector: u64, script: &str) -> Self {
        let file = directory.join(name);
        File::create(&file).unwrap().set_len(OLD * MIB).unwrap();
        let line = format!("losetup -f --show -P -b {sector}");
        let name = ok(&line, &file).trim().strip_prefix("/dev/").unwrap().to_owned();
        let disk = Self { file, name, points: Vec::new() };
        if !script.is_empty() {
            let device = disk.device();
            let (code, said) = run(
                "sfdisk",
                &[
                    "-q".as_ref(),
                    "--no-reread".as_ref(),
                    "--no-tell-kernel".as_ref(),
                    device.as_os_str(),
                ],
                script,
            );
            assert_eq!(code, Some(0), "{said}");
            disk.add_partition(sector);
        }
        disk
    }

    pub(crate) fn device(&self) -> PathBuf {
        Path::new("/dev").join(&self.name)
    }

    pub(crate) fn partition(&self) -> PathBuf {
        Path::new("/dev").join(format!("{}p1", self.name))
    }

    /// Tells the kernel of its partition, if it reads no tables.
    fn add_partition(&self, sector: u64) {
        let of_kernel = format!("/sys/block/{0}/{0}p1", self.name);
        if !Path::new(&of_kernel).exists() {
            let dump = ok("sfdisk -d", &self.device());
            let size = dump.split("size=").nth(1).unwrap().split(',').next().unwrap();
            let start = MIB / 512;
            let size = size.trim().parse::<u64>().unwrap() * sector / 512;
            self.tell(&["1", &start.to_string(), &size.to_string()]);
        }
    }

    /// Adds a partition in the kernel.
    pub(crate) fn tell(&self, words: &[&str]) {
        let device = self.device();
        let mut all = vec![device.as_os_str()];
        all.extend(words.iter().map(OsStr::new));
        assert_eq!(run("addpart", &all, "").0, Some(0));
    }

    /// Makes a file system on it, and mounts that.
    pub(crate) fn mounted(mut self, device: &Path, kind: &str, point: &Path) -> Self {
        let force = if kind == "ext4" { "-F" } else { "-f" };
        ok(&format!("mkfs.{kind} -q {force}"), device);
        fs::create_dir_all(point).unwrap();
        let (code, said) = run("mount", &[device.as_os_str(), point.as_os_str()], "");
        assert_eq!(code, Some(0), "{said}");
        self.points.push(point.to_owned());
        self
    }

    /// As a host does it.
    pub(crate) fn resize(&self, mib: u64) {
        OpenOptions::new().write(true).open(&self.file).unwrap().set_len(mib * MIB).unwrap();
        ok("losetup -c", &self.device());
    }

    /// The sectors of its table, all but the partition.
    pub(crate) fn table(&self) -> Vec<u8> {
        let file = File::open(&self.file).unwrap();
        let length = file.metadata().unwrap().len();
        let mut all = vec![0; 2 << 20];
        let (start, end) = all.split_at_mut(1 << 20);
        file.read_exact_at(start, 0).unwrap();
        file.read_exact_at(end, length - MIB).unwrap();
        all
    }

    /// Bytes of the partition in the kernel.
    pub(crate) fn length(&self) -> u64 {
        let path = format!("/sys/block/{0}/{0}p1/size", self.name);
        fs::read_to_string(path).unwrap().trim().parse::<u64>().unwrap() * 512
    }

    pub(crate) fn grow(&self, options: &[&str]) -> (Option<i32>, String) {
        grow(&[&[&*self.name], options].concat())
    }
}

pub(crate) fn grow(arguments: &[&str]) -> (Option<i32>, String) {
    let mut words = vec![OsStr::new("grow")];
    words.extend(arguments.iter().map(OsStr::new));
    run(agent().to_str().unwrap(), &words, "")
}

/// MiB of a file system.
pub(crate) fn size(point: &Path) -> u64 {
    let about = rustix::fs::statvfs(point).unwrap();
    about.f_blocks * about.f_frsize / MIB
}

/// A file system of others, smaller than its disk, in which mount points are.
pub(crate) fn victim(scratch: &Scratch) -> (Disk, PathBuf, u64) {
    let point = scratch.0.join("victim");
    let disk = Disk::new(&scratch.0, "victim.disk", 512, "");
    let device = disk.device();
    let disk = disk.mounted(&device, "xfs", &point);
    disk.resize(2 * NEW);
    let before = size(&point);
    (disk, point, before)
}
