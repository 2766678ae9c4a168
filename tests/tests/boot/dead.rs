//! A file system whose server never answers, and what hangs on it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};

use mote_tests::host::NAME;
use mote_tests::{kill, wait};
use rustix::process::Signal;

use crate::world::{Boot, LIMIT, in_private_mounts, is_root};

/// A FUSE server's opcodes (`linux/fuse.h`).
const INIT: u32 = 26;
const ACCESS: u32 = 34;

/// A mounted FUSE file system of which nothing is answered but that it is there.
struct Dead {
    place: PathBuf,
    /// The opcode of each request that its server has read.
    read: Receiver<u32>,
}

impl Drop for Dead {
    fn drop(&mut self) {
        // By force: what hangs on it goes on with an error.
        let _gone = Command::new("umount").args(["-f", "-l"]).arg(&self.place).status();
    }
}

fn dead(place: &Path) -> Dead {
    let mut device = File::options().read(true).write(true).open("/dev/fuse").expect("FUSE");
    let mounted = Command::new("mount")
        .args(["-i", "-t", "fuse", "-o", "fd=0,rootmode=40000,user_id=0,group_id=0", "dead"])
        .arg(place)
        .stdin(device.try_clone().expect("FUSE"))
        .status();
    assert!(mounted.expect("mount").success());
    let (sender, read) = channel();
    std::thread::spawn(move || {
        let mut request = vec![0; 256 * 1024];
        while device.read(&mut request).is_ok() {
            let opcode = u32::from_ne_bytes(*request[4..].first_chunk().expect("a header"));
            if opcode == INIT {
                // Version 7.31, nothing beyond the least.
                let mut answer = vec![0; 16 + 64];
                answer[..4].copy_from_slice(&80_u32.to_ne_bytes());
                answer[8..16].copy_from_slice(&request[8..16]);
                for (at, number) in [(16, 7_u32), (20, 31), (36, 4096), (40, 1)] {
                    answer[at..at + 4].copy_from_slice(&number.to_ne_bytes());
                }
                device.write_all(&answer).expect("FUSE");
            }
            let _over = sender.send(opcode);
        }
    });
    Dead { place: place.into(), read }
}

fn children(process: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    list.unwrap_or_default().split_whitespace().filter_map(|one| one.parse().ok()).collect()
}

#[test]
fn a_command_on_a_dead_file_system_keeps_nothing_of_an_agent_that_is_killed() {
    if !is_root() || !Path::new("/dev/fuse").exists() {
        return mote_tests::skipped("root and /dev/fuse");
    }
    let name = "dead::a_command_on_a_dead_file_system_keeps_nothing_of_an_agent_that_is_killed";
    if !in_private_mounts(name) {
        return;
    }
    let boot = Boot::new("lxd");
    let place = boot.scratch.0.join("dead");
    fs::create_dir(&place).unwrap();
    let dead = dead(&place);
    let mut agent = boot.start(&[]);
    boot.serves();
    boot.logged("CONNECTED");
    let cwd = place.display().to_string();
    let _exec = boot.host.launch(&["exec", NAME, "--cwd", &cwd, "--", "true"]);
    // chdir(2) asks the server, which has read it: no signal gets the child out of there.
    wait("chdir(2)", LIMIT, || dead.read.try_iter().find(|one| *one == ACCESS));
    let children = children(agent.0.id());
    let [child] = children[..] else { panic!("{children:?}") };
    let open = fs::read_dir(format!("/proc/{child}/fd")).unwrap();
    let mut open: Vec<PathBuf> = open.flatten().map(|one| one.file_name().into()).collect();
    open.sort_unstable();
    assert_eq!(open, ["0", "1", "2", "3"].map(PathBuf::from), "its own and the pipe");
    agent.kill();
    kill(Signal::KILL, child);
    let mut second = boot.start(&[]);
    boot.serves();
    assert!(second.0.try_wait().unwrap().is_none());
    let state = fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
    assert!(state.contains(") D "), "it still hangs: {state}");
}
