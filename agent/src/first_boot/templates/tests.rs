use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::fs::FileType;

use super::*;
use crate::runtime::{Scratch, chmod, scratch};

struct World {
    share: PathBuf,
    root: PathBuf,
    _top: Scratch,
}

impl World {
    fn new(name: &str, metadata: &str) -> Self {
        let top = scratch(name);
        let (share, root) = (top.join("share"), top.join("root"));
        fs::create_dir_all(share.join("files")).unwrap();
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::write(share.join("files/metadata.yaml"), metadata).unwrap();
        Self { share, root, _top: top }
    }

    fn out(&self, name: &str, text: &str) {
        fs::write(self.share.join(format!("files/{name}.out")), text).unwrap();
    }

    fn apply(&self, flavour: Flavour) -> Applied {
        apply(&self.share, &self.root, flavour, Features::ALL)
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap_or_default()
    }

    fn mode(&self, path: &str) -> u32 {
        fs::metadata(self.root.join(path)).unwrap().mode() & 0o7777
    }
}

const EACH: [Flavour; 3] = [Flavour::Incus, Flavour::Lxd, Flavour::LxdOld];

#[test]
fn creates_files_with_directories_and_modes() {
    for flavour in EACH {
        let world = World::new(
            "new",
            "templates: {/etc/a/b/c: {template: t, mode: 600}, /x: {template: u}}",
        );
        world.out("t", "text\n");
        let applied = world.apply(flavour);
        assert_eq!(
            (applied.written, applied.changed),
            (vec!["etc/a/b/c".into()], vec!["etc/a/b/c".into()])
        );
        assert_eq!(world.text("etc/a/b/c"), "text\n");
        let mode = if flavour == Flavour::Incus { 0o600 } else { 0o644 };
        assert_eq!((world.mode("etc/a/b/c"), world.mode("etc/a")), (mode, 0o755));
        assert_eq!(fs::read_dir(world.root.join("etc/a/b")).unwrap().count(), 1);
        assert!(applied.troubles.is_empty() && !world.root.join("x").exists());
    }
}

#[test]
fn an_existing_file_keeps_its_inode_and_mode() {
    for (flavour, mode) in EACH.into_iter().zip([0o600, 0o600, 0o640]) {
        let world = World::new("there", "templates: {/etc/a: {template: t, mode: 644}}");
        fs::write(world.root.join("etc/a"), "something longer than the template").unwrap();
        chmod(&world.root.join("etc/a"), mode);
        let inode = fs::metadata(world.root.join("etc/a")).unwrap().ino();
        world.out("t", "new");
        assert!(world.apply(flavour).changed("etc/a"));
        assert_eq!((world.text("etc/a").as_str(), world.mode("etc/a")), ("new", mode));
        assert_eq!(fs::metadata(world.root.join("etc/a")).unwrap().ino(), inode);
        let again = world.apply(flavour);
        assert!(again.wrote("etc/a") && !again.changed("etc/a"));
    }
}

#[test]
fn create_only_keeps_existing_files_and_dangling_links() {
    for flavour in EACH {
        let world = World::new(
            "only",
            "templates: {/a: {template: t, create_only: true}, /b: {template: t, create_only: true}}",
        );
        world.out("t", "new");
        std::os::unix::fs::symlink("nowhere", world.root.join("b")).unwrap();
        assert_eq!(world.apply(flavour).written, ["a"]);
        fs::write(world.root.join("a"), "kept").unwrap();
        assert!(world.apply(flavour).written.is_empty());
        assert_eq!(world.text("a"), "kept");
        assert!(!world.root.join("nowhere").exists());
    }
}

#[test]
fn follows_a_symbolic_link() {
    let world = World::new("link", "templates: {/etc/a: {template: t}}");
    std::os::unix::fs::symlink("b", world.root.join("etc/a")).unwrap();
    world.out("t", "through");
    assert!(world.apply(Flavour::Lxd).wrote("etc/a"));
    assert_eq!(world.text("etc/b"), "through");
}

#[test]
fn follows_no_link_of_a_user() {
    use std::os::unix::fs::{chown, lchown, symlink};

    if !rustix::process::geteuid().is_root() {
        return mote_machine::skipped("root");
    }
    let world = World::new(
        "users",
        "templates: {/home/a: {template: t}, /home/b/c: {template: t}, /home/d: {template: t}, \
         /home/e: {template: t}}",
    );
    world.out("t", "new");
    let path = |path: &str| world.root.join(path);
    fs::create_dir(path("home")).unwrap();
    chown(path("home"), Some(65_534), None).unwrap();
    fs::write(path("etc/a"), "old").unwrap();
    for (target, link) in [("../etc/a", "home/a"), ("/etc", "home/b")] {
        symlink(target, path(link)).unwrap();
        lchown(path(link), Some(65_534), None).unwrap();
    }
    fs::hard_link(path("etc/a"), path("home/d")).unwrap();
    let applied = world.apply(Flavour::Lxd);
    // Targets among the user's own files are allowed.
    assert_eq!(applied.written, ["home/e"]);
    assert_eq!((world.text("etc/a").as_str(), path("etc/c").exists()), ("old", false));
    let troubles = applied.troubles.join("; ");
    for part in ["home/a is not followed", "home/b is not followed", "home/d: a hard link"] {
        assert!(troubles.contains(part), "{part}: {troubles}");
    }
}

#[test]
fn a_failed_template_does_not_stop_the_others() {
    let world = World::new(
        "fails",
        "templates:\n  /etc: {template: t}\n  /../x: {template: t}\n  /etc/fifo: {template: f}\n  \
         /etc/good: {template: t}\n  /etc/bad: {template: &a t}\n",
    );
    world.out("t", "text");
    let fifo = world.share.join("files/f.out");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0)
        .unwrap();
    let applied = world.apply(Flavour::Incus);
    assert_eq!(applied.written, ["etc/good"]);
    let troubles = applied.troubles.join("; ");
    for part in ["template /etc: ", "line 3", "template f: not a regular", "line 6: an anchor"] {
        assert!(troubles.contains(part), "{part}: {troubles}");
    }
    assert_eq!(count(&world.share).unwrap_err().matches("anchor").count(), 1);
}

#[test]
fn compares_and_copies_long_files_completely() {
    let world = World::new("long", "templates: {/a: {template: t}}");
    let text = "x".repeat(3 * COPY_BUFFER + 7);
    world.out("t", &text);
    assert!(world.apply(Flavour::Lxd).changed("a"));
    assert!(!world.apply(Flavour::Lxd).changed("a"));
    fs::write(world.root.join("a"), format!("{}y", &text[1..])).unwrap();
    assert!(world.apply(Flavour::Lxd).changed("a"));
    assert_eq!(world.text("a"), text);
    assert_eq!(count(&world.share).unwrap(), 1);
}
