//! `mote-agent grow` on disks that are files, and its failures.
#![allow(clippy::unwrap_used)] // in helpers too: all of this is a test

use mote_tests::prelude::*;

#[test]
fn grows_each_file_system_at_any_mount_point_name() {
    let Some(scratch) = disks("grows_each_file_system_at_any_mount_point_name") else { return };
    for kind in kinds() {
        let point = scratch.0.join("My\tDisk\n\\040");
        let disk = Disk::with(&scratch.0, "disk", kind, &point);
        disk.resize(NEW);
        let table = disk.table();
        let expected =
            format!("{}p1 and its file system would grow to {} MiB\n", disk.name, NEW - 2);
        assert_eq!(disk.grow(&["--dry-run"]), (Some(0), expected.clone()));
        assert!(disk.table() == table && disk.length() < OLD * MIB);
        let grew = (Some(0), expected.replace("would grow", "grew"));
        assert_eq!(grow(&[&*format!("/dev/{}", disk.name)]), grew);
        assert!(size(&point) > NEW * 8 / 10, "{kind}: {}", size(&point));
        ok("sfdisk --verify", &disk.device());
        assert_eq!(disk.grow(&[]), (Some(0), format!("{}: nothing to do\n", disk.name)));
    }
}

#[test]
fn restores_the_table_if_the_kernel_refuses() {
    let Some(scratch) = disks("restores_the_table_if_the_kernel_refuses") else { return };
    let point = scratch.0.join("point");
    for script in [GPT, "label: dos\nstart=2048, type=83\n"] {
        // Behind this partition, the kernel knows another one that is not in the table.
        let disk = Disk::new(&scratch.0, "disk", 512, script);
        let partition = disk.partition();
        let disk = disk.mounted(&partition, "ext4", &point);
        disk.resize(NEW);
        let place = (OLD + 20) * MIB / 512;
        disk.tell(&["2", &place.to_string(), "2048"]);
        disk.refuses("the kernel rejects a longer partition");
    }
}

#[test]
fn grows_btrfs_on_one_device_only() {
    let Some(scratch) = disks("grows_btrfs_on_one_device_only") else { return };
    let point = scratch.0.join("point");
    let mut first = Disk::with(&scratch.0, "first", "btrfs", &point);
    let second = Disk::new(&scratch.0, "second", 512, GPT);
    let words = |verb: &str, disk: &Disk| {
        let device = disk.partition();
        let words = ["device".as_ref(), verb.as_ref(), device.as_os_str(), point.as_os_str()];
        exits(fed("btrfs", &words, ""), Some(0), &[]);
    };
    words("add", &second);
    second.resize(NEW);
    first.resize(NEW);
    first.refuses("has several devices");
    words("remove", &first);
    exits(second.grow(&[]), Some(0), &[]);
    assert!(size(&point) > NEW * 8 / 10);
    let (code, _) = first.grow(&[]);
    assert_eq!(code, Some(1), "it is no longer mounted");
    ok("umount", &point);
    first.points.clear();
}

#[test]
fn does_not_shrink_a_file_system_larger_than_its_disk() {
    let Some(scratch) = disks("does_not_shrink_a_file_system_larger_than_its_disk") else { return };
    for kind in kinds() {
        let point = scratch.0.join(kind);
        let disk = Disk::new(&scratch.0, "disk", 512, "");
        let device = disk.device();
        let disk = disk.mounted(&device, kind, &point);
        disk.resize(NEW);
        exits(disk.grow(&[]), Some(0), &[]);
        let before = size(&point);
        assert!(before > NEW * 8 / 10, "{kind}");
        ok("mount -o remount,ro", &point);
        disk.resize(2 * NEW);
        exits(disk.grow(&[]), Some(1), &["mounted read-only"]);
        ok("mount -o remount,rw", &point);
        disk.resize(NEW - 16);
        assert_eq!(disk.grow(&[]), (Some(0), format!("{}: nothing to do\n", disk.name)));
        assert_eq!(size(&point), before, "{kind}");
    }
}

#[test]
fn reports_what_cannot_grow() {
    let Some(scratch) = disks("reports_what_cannot_grow") else { return };
    for name in ["mote-none", "/dev/mote-none", "../block", ".", "/dev/"] {
        exits(grow(&[name]), Some(1), &["/sys/block has no disk"]);
    }
    let disk = Disk::new(&scratch.0, "disk", 512, "");
    exits(disk.grow(&[]), Some(1), &["no valid GPT or MBR"]);
    exits(grow(&[&*format!("{}p1", disk.name)]), Some(1), &["/sys/block has no disk"]);
    // Programs may choose a name that is not UTF-8.
    let odd = OsStr::from_bytes(b"\xff");
    assert_eq!(fed(agent().to_str().unwrap(), &["grow".as_ref(), odd], "").0, Some(2));
}

#[test]
fn keeps_the_partition_of_an_unreachable_file_system() {
    let Some(scratch) = disks("keeps_the_partition_of_an_unreachable_file_system") else { return };
    let (point, file) = (scratch.0.join("point"), scratch.0.join("file"));
    fs::write(&file, "").unwrap();
    // The mount is covered, its parent is covered, only a file of it is mounted, it is in another
    // namespace only, or there is none.
    let hidden = [
        "mount -t tmpfs none $0",
        "mount -t tmpfs none $(dirname $0)",
        "touch $0/f; mount --bind $0/f $1; umount $0",
        "umount $0",
    ];
    for (index, script) in hidden.iter().enumerate() {
        let point = scratch.0.join(index.to_string()).join("point");
        let disk = Disk::with(&scratch.0, "disk", "xfs", &point);
        disk.resize(NEW);
        let words = ["-c".as_ref(), (*script).as_ref(), point.as_os_str(), file.as_os_str()];
        assert_eq!(fed("sh", &words, "").0, Some(0), "{script}");
        disk.refuses("");
        let words = ["-c", "umount -l $0 $(dirname $0) $1; true"].map(OsStr::new);
        fed("sh", &[&words[..], &[point.as_os_str(), file.as_os_str()]].concat(), "");
    }
    // Only the read-only flag, set by root, protects this disk.
    let disk = Disk::with(&scratch.0, "disk", "xfs", &point);
    disk.resize(NEW);
    ok("blockdev --setro", &disk.device());
    disk.refuses("");
    // The kernel keeps the flag for the loop device's next file.
    ok("blockdev --setrw", &disk.device());
}

#[test]
fn concurrent_workers_grow_a_disk_once() {
    let Some(scratch) = disks("concurrent_workers_grow_a_disk_once") else { return };
    let point = scratch.0.join("point");
    let disk = Disk::with(&scratch.0, "disk", "xfs", &point);
    for length in [NEW, 2 * NEW] {
        disk.resize(length);
        thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(|| disk.grow(&[]))).collect();
            let all: Vec<_> = all.into_iter().map(|one| one.join().unwrap()).collect();
            assert!(all.iter().any(|(code, _)| *code == Some(0)), "{all:?}");
        });
        ok("sfdisk --verify", &disk.device());
        assert_eq!(disk.length(), (length - 1) * MIB - 33 * 512);
        assert!(size(&point) > length * 8 / 10);
    }
}

const MIB: u64 = 1 << 20;
/// Sizes of a disk, MiB. XFS and btrfs have a minimum.
const OLD: u64 = 320;
const NEW: u64 = 500;
/// A partition table whose one partition extends to the disk's end.
const GPT: &str = "label: gpt\nstart=2048, type=linux\n";

fn ok(line: &str, path: &Path) -> String {
    let mut words: Vec<&OsStr> = line.split(' ').map(OsStr::new).collect();
    let program = words.remove(0).to_str().unwrap();
    words.push(path.as_os_str());
    let (code, said) = fed(program, &words, "");
    assert_eq!(code, Some(0), "{line} {}: {said}", path.display());
    said
}

/// Runs the named test again in a private mount namespace. There, returns a directory for disks, or
/// `None` if this machine cannot create disks.
fn disks(test: &str) -> Option<Scratch> {
    let true = in_private(Private::Mounts, test) else { return None };
    let tools = ["sfdisk", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "losetup", "addpart"];
    let known = fs::read_to_string("/proc/filesystems").unwrap();
    let is_known = ["ext4", "xfs", "btrfs"].iter().all(|kind| known.contains(kind));
    let loops = Command::new("losetup").arg("-f").output().is_ok_and(|out| out.status.success());
    let can = has_programs(&tools) && is_known && loops;
    if !can {
        skipped("root, loop devices, ext4, xfs, btrfs and the tools that make them");
    }
    can.then(Scratch::new)
}

/// Returns the file systems that this machine can grow. ext4 needs a capability that some
/// containers lack.
fn kinds() -> Vec<&'static str> {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let rights = status.split("CapEff:").nth(1).unwrap().split_whitespace().next().unwrap();
    let has_right = u64::from_str_radix(rights, 16).unwrap() >> 24 & 1 == 1;
    if has_right {
        return vec!["xfs", "btrfs", "ext4"];
    }
    skipped("CAP_SYS_RESOURCE: ext4 does not grow without it");
    vec!["xfs", "btrfs"]
}

struct Disk {
    file: PathBuf,
    name: String,
    points: Vec<PathBuf>,
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
    /// Creates a disk with this sector size, partitioned by an sfdisk script.
    fn new(directory: &Path, name: &str, sector: u64, script: &str) -> Self {
        let file = directory.join(name);
        File::create(&file).unwrap().set_len(OLD * MIB).unwrap();
        let line = format!("losetup -f --show -P -b {sector}");
        let name = ok(&line, &file).trim().strip_prefix("/dev/").unwrap().to_owned();
        let disk = Self { file, name, points: Vec::new() };
        if !script.is_empty() {
            let device = disk.device();
            let quiet = ["-q", "--no-reread", "--no-tell-kernel"].map(OsStr::new);
            let words = [&quiet[..], &[device.as_os_str()]].concat();
            exits(fed("sfdisk", &words, script), Some(0), &[]);
            disk.add_partition(sector);
        }
        disk
    }

    fn device(&self) -> PathBuf {
        Path::new("/dev").join(&self.name)
    }

    fn partition(&self) -> PathBuf {
        Path::new("/dev").join(format!("{}p1", self.name))
    }

    /// Adds the partition to the kernel's list if the kernel has not read the table.
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

    fn tell(&self, words: &[&str]) {
        let device = self.device();
        let mut all = vec![device.as_os_str()];
        all.extend(words.iter().map(OsStr::new));
        assert_eq!(fed("addpart", &all, "").0, Some(0));
    }

    fn mounted(mut self, device: &Path, kind: &str, point: &Path) -> Self {
        let force = if kind == "ext4" { "-F" } else { "-f" };
        ok(&format!("mkfs.{kind} -q {force}"), device);
        fs::create_dir_all(point).unwrap();
        exits(fed("mount", &[device.as_os_str(), point.as_os_str()], ""), Some(0), &[]);
        self.points.push(point.to_owned());
        self
    }

    /// Creates a disk with a GPT, and a file system in its partition that is mounted at `point`.
    fn with(directory: &Path, name: &str, kind: &str, point: &Path) -> Self {
        let disk = Self::new(directory, name, 512, GPT);
        let partition = disk.partition();
        disk.mounted(&partition, kind, point)
    }

    /// Checks that growing fails for this reason and changes neither table nor partition.
    #[track_caller]
    fn refuses(&self, why: &str) {
        let (table, length) = (self.table(), self.length());
        let (code, said) = self.grow(&[]);
        assert!(code == Some(1) && said.contains(why), "{why}: {said}");
        assert!(self.table() == table && self.length() == length, "{said}");
    }

    fn resize(&self, mib: u64) {
        OpenOptions::new().write(true).open(&self.file).unwrap().set_len(mib * MIB).unwrap();
        ok("losetup -c", &self.device());
    }

    fn table(&self) -> Vec<u8> {
        let file = File::open(&self.file).unwrap();
        let length = file.metadata().unwrap().len();
        let mut all = vec![0; 2 << 20];
        let (start, end) = all.split_at_mut(1 << 20);
        file.read_exact_at(start, 0).unwrap();
        file.read_exact_at(end, length - MIB).unwrap();
        all
    }

    fn length(&self) -> u64 {
        let path = format!("/sys/block/{0}/{0}p1/size", self.name);
        fs::read_to_string(path).unwrap().trim().parse::<u64>().unwrap() * 512
    }

    fn grow(&self, options: &[&str]) -> (Option<i32>, String) {
        grow(&[&[&*self.name], options].concat())
    }
}

fn grow(arguments: &[&str]) -> (Option<i32>, String) {
    fed(agent().to_str().unwrap(), &[&["grow"], arguments].concat(), "")
}

fn size(point: &Path) -> u64 {
    let about = rustix::fs::statvfs(point).unwrap();
    about.f_blocks * about.f_frsize / MIB
}
