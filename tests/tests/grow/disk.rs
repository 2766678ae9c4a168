//! Disks that are files, by loop devices of this machine.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) use mote_tests::fed as run;
use mote_tests::{Private, Scratch, agent, in_private, skipped};

pub(crate) const MIB: u64 = 1 << 20;
/// Sizes of a disk, MiB. XFS and btrfs have a minimum.
pub(crate) const OLD: u64 = 320;
pub(crate) const NEW: u64 = 500;
/// A partition table whose one partition extends to the disk's end.
pub(crate) const GPT: &str = "label: gpt\nstart=2048, type=linux\n";

pub(crate) fn ok(line: &str, path: &Path) -> String {
    let mut words: Vec<&OsStr> = line.split(' ').map(OsStr::new).collect();
    let program = words.remove(0).to_str().unwrap();
    words.push(path.as_os_str());
    let (code, said) = run(program, &words, "");
    assert_eq!(code, Some(0), "{line} {}: {said}", path.display());
    said
}

/// Returns a directory for disks if this machine can create them, after it has run the test of this
/// name in a private mount namespace.
pub(crate) fn disks(test: &str) -> Option<Scratch> {
    if !in_private(Private::Mounts, test) {
        return None;
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
    can.then(Scratch::new)
}

/// Returns the file systems that this machine can grow. ext4 needs a capability that some
/// containers lack.
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

pub(crate) struct Disk {
    pub(crate) file: PathBuf,
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
    /// Creates a disk with this sector size and a partition table by an sfdisk script.
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

    /// Adds the partition if the kernel has not read the table.
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

    pub(crate) fn tell(&self, words: &[&str]) {
        let device = self.device();
        let mut all = vec![device.as_os_str()];
        all.extend(words.iter().map(OsStr::new));
        assert_eq!(run("addpart", &all, "").0, Some(0));
    }

    pub(crate) fn mounted(mut self, device: &Path, kind: &str, point: &Path) -> Self {
        let force = if kind == "ext4" { "-F" } else { "-f" };
        ok(&format!("mkfs.{kind} -q {force}"), device);
        fs::create_dir_all(point).unwrap();
        let (code, said) = run("mount", &[device.as_os_str(), point.as_os_str()], "");
        assert_eq!(code, Some(0), "{said}");
        self.points.push(point.to_owned());
        self
    }

    /// Creates a disk with a GPT, and a file system in its partition that is mounted at `point`.
    pub(crate) fn with(directory: &Path, name: &str, kind: &str, point: &Path) -> Self {
        let disk = Self::new(directory, name, 512, GPT);
        let partition = disk.partition();
        disk.mounted(&partition, kind, point)
    }

    /// Checks that it cannot grow for this reason, and changes neither table nor partition.
    #[track_caller]
    pub(crate) fn refuses(&self, why: &str) {
        let (table, length) = (self.table(), self.length());
        let (code, said) = self.grow(&[]);
        assert!(code == Some(1) && said.contains(why), "{why}: {said}");
        assert!(self.table() == table && self.length() == length, "{said}");
    }

    pub(crate) fn resize(&self, mib: u64) {
        OpenOptions::new().write(true).open(&self.file).unwrap().set_len(mib * MIB).unwrap();
        ok("losetup -c", &self.device());
    }

    /// Returns the table's sectors, without the partition.
    pub(crate) fn table(&self) -> Vec<u8> {
        let file = File::open(&self.file).unwrap();
        let length = file.metadata().unwrap().len();
        let mut all = vec![0; 2 << 20];
        let (start, end) = all.split_at_mut(1 << 20);
        file.read_exact_at(start, 0).unwrap();
        file.read_exact_at(end, length - MIB).unwrap();
        all
    }

    /// Returns the partition's size in bytes, as the kernel knows it.
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

pub(crate) fn size(point: &Path) -> u64 {
    let about = rustix::fs::statvfs(point).unwrap();
    about.f_blocks * about.f_frsize / MIB
}
