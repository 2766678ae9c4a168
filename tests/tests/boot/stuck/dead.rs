//! A file system whose server never answers, and processes that hang on it.

use std::fs;
use std::path::{Path, PathBuf};

use mote_tests::{NAME, is_root, kill, wait};
use rustix::process::Signal;

use super::fuse::{ACCESS, Fuse};
use crate::world::{Boot, LIMIT, in_private_mounts};

fn children(process: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    list.unwrap_or_default().split_whitespace().filter_map(|one| one.parse().ok()).collect()
}

#[test]
fn a_hanging_command_keeps_nothing_of_a_killed_agent() {
    if !is_root() || !Path::new("/dev/fuse").exists() {
        mote_tests::skipped("root and /dev/fuse");
        return;
    }
    let name = "stuck::dead::a_hanging_command_keeps_nothing_of_a_killed_agent";
    if !in_private_mounts(name) {
        return;
    }
    let boot = Boot::new("lxd");
    let place = boot.scratch.0.join("dead");
    fs::create_dir(&place).unwrap();
    let dead = Fuse::mount(&place);
    dead.fall_silent();
    let mut agent = boot.start(&[]);
    boot.serves();
    boot.logged("CONNECTED");
    let cwd = place.display().to_string();
    let _exec = boot.host.launch(&["exec", NAME, "--cwd", &cwd, "--", "true"]);
    // chdir(2) calls the server, which has read the request: no signal can end the child.
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
