//! Applies the host's templates (P§1.7): copies each from the share, while that is mounted, to its
//! target. A template that fails is logged and the others are applied. The real agents exit at the first
//! failure, again after each restart, and the guest stays without an agent.
//!
//! An existing target is truncated in place, as in the real agents: it may be a bind mount, a hard link, a
//! symbolic link, or have its own owner and labels. A new target is written beside and renamed, so that a
//! crash never leaves half a file, which `create_only` would keep for ever.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use mote_core::first_boot::template::{self, Template};
use mote_core::flavour::Flavour;
use mote_core::guest_path::Target;
use rustix::fs::{Mode, OFlags};

use crate::runtime::log;
use crate::runtime::small_files::read_bounded;

/// Longest `metadata.yaml`, bytes; real ones have a few thousand.
const METADATA: u64 = 256 * 1024;
/// Copy buffer, bytes.
const PIECE: usize = 16 * 1024;

/// Result of [`apply`].
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// Targets that have their template's text now; paths relative to the root.
    pub(crate) written: Vec<String>,
    /// Those of them that had another text before, or did not exist.
    pub(crate) changed: Vec<String>,
    /// Errors, one per failed template, as logged.
    pub(crate) troubles: Vec<String>,
}

impl Applied {
    /// Whether this target has its template's text.
    pub(crate) fn wrote(&self, path: &str) -> bool {
        self.written.iter().any(|written| written == path)
    }

    /// Whether this target had another text before.
    pub(crate) fn changed(&self, path: &str) -> bool {
        self.changed.iter().any(|changed| changed == path)
    }

    fn trouble(&mut self, text: String) {
        log::warn(format_args!("{text}"));
        self.troubles.push(text);
    }
}

/// Number of templates to apply from a share, for `--check`.
///
/// # Errors
/// `metadata.yaml` cannot be read or parsed.
pub(crate) fn count(share: &Path) -> Result<usize, String> {
    let mut count = 0;
    each(share, |template| {
        count += usize::from(template.is_ok_and(|template| source(share, &template).exists()));
    })?;
    Ok(count)
}

/// Applies all templates that the host has rendered.
pub(crate) fn apply(share: &Path, root: &Path, flavour: Flavour) -> Applied {
    let mut applied = Applied::default();
    // New directories are 0755 (P§1.7); the rest of the agent runs with a stricter umask.
    let umask = rustix::process::umask(Mode::from_raw_mode(0o022));
    let listed = each(share, |template| match template {
        Ok(template) => one(share, root, flavour, &template, &mut applied),
        Err(why) => applied.trouble(why),
    });
    rustix::process::umask(umask);
    if let Err(why) = listed {
        applied.trouble(why);
    }
    applied
}

/// Passes each entry of `files/metadata.yaml` to `give`; none if there is no such file.
///
/// # Errors
/// The file cannot be read or parsed.
fn each(share: &Path, mut give: impl FnMut(Result<Template, String>)) -> Result<(), String> {
    let text = |why: &dyn std::fmt::Display| format!("files/metadata.yaml: {why}");
    let metadata = match read_bounded(&share.join("files/metadata.yaml"), METADATA) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(text(&error)),
    };
    let listed = template::each(&metadata, |one| give(one.map_err(|why| text(&why))));
    listed.map_err(|why| text(&why))
}

fn source(share: &Path, template: &Template) -> PathBuf {
    share.join("files").join(format!("{}.out", template.name))
}

fn one(share: &Path, root: &Path, flavour: Flavour, template: &Template, applied: &mut Applied) {
    let source = match open_plain(&source(share, template)) {
        Ok(source) => source,
        // The host has not rendered it for this boot.
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        Err(error) => return applied.trouble(format!("template {}: {error}", template.name)),
    };
    let Some(target) = Target::absolute(&template.target) else { return };
    let below_root = target.parts().collect::<Vec<_>>().join("/");
    match write(source, &root.join(&below_root), flavour, template) {
        Ok(Done::Kept) => log::debug(format_args!("template {} is there", template.target)),
        Ok(done) => {
            log::info(format_args!("template {}", template.target));
            if done == Done::Changed {
                applied.changed.push(below_root.clone());
            }
            applied.written.push(below_root);
        }
        Err(error) => applied.trouble(format!("template {}: {error}", template.target)),
    }
}

/// Opens a regular file for reading, and refuses all others: opening or reading a FIFO could block.
fn open_plain(path: &Path) -> io::Result<File> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a file")) }
}

/// Result of `write`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Done {
    /// The target exists, and the template is `create_only`.
    Kept,
    /// The target had the template's text already.
    Same,
    Changed,
}

fn write(mut source: File, path: &Path, flavour: Flavour, template: &Template) -> io::Result<Done> {
    // A dangling symbolic link counts as existing: the text is written where it points.
    let exists = path.symlink_metadata().is_ok();
    if exists && template.create_only {
        return Ok(Done::Kept);
    }
    if !exists {
        return create(source, path, flavour, template).map(|()| Done::Changed);
    }
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o644).custom_flags(flags);
    let mut file = options.open(path)?;
    let same = same(&mut source, &mut file)?;
    if !same {
        io::Seek::rewind(&mut source)?;
        io::Seek::rewind(&mut file)?;
        file.set_len(0)?;
        copy(&mut source, &mut file)?;
    }
    // Only current LXD sets the mode of an existing file. LXD 5.21 does not, but has the same flavour
    // here.
    if flavour == Flavour::Lxd {
        file.set_permissions(PermissionsExt::from_mode(0o644))?;
    }
    Ok(if same { Done::Same } else { Done::Changed })
}

/// Writes a target that does not exist, with its directories.
fn create(mut source: File, path: &Path, flavour: Flavour, template: &Template) -> io::Result<()> {
    let directory = path.parent().ok_or(ErrorKind::InvalidInput)?;
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    let beside = directory.join(".mote-template");
    let _stale = std::fs::remove_file(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    let made = copy(&mut source, &mut file).and_then(|()| {
        let (ids, mode) = match flavour {
            Flavour::Incus => ((template.uid, template.gid), template.mode),
            Flavour::Lxd | Flavour::LxdOld => ((0, 0), 0o644),
        };
        let ours = file.metadata()?;
        if (ours.uid(), ours.gid()) != ids && flavour == Flavour::Incus {
            fchown(&file, Some(ids.0), Some(ids.1))?;
        }
        file.set_permissions(PermissionsExt::from_mode(mode))?;
        std::fs::rename(&beside, path)
    });
    if made.is_err() {
        let _ours = std::fs::remove_file(&beside);
    }
    made
}

fn copy(from: &mut File, to: &mut File) -> io::Result<()> {
    let mut piece = [0; PIECE];
    loop {
        match from.read(&mut piece)? {
            0 => return Ok(()),
            count => to.write_all(piece.get(..count).unwrap_or_default())?,
        }
    }
}

/// Whether both files have the same contents, from their current positions on.
fn same(one: &mut File, other: &mut File) -> io::Result<bool> {
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut ours, mut theirs) = ([0; PIECE], [0; PIECE]);
    loop {
        let count = one.read(&mut ours)?;
        let part = theirs.get_mut(..count).unwrap_or_default();
        match other.read_exact(part) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(error),
        }
        if count == 0 {
            return Ok(true);
        }
        if ours.get(..count) != Some(&*part) {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct World {
        share: PathBuf,
        root: PathBuf,
    }

    impl World {
        fn new(name: &str, metadata: &str) -> Self {
            let top = crate::runtime::scratch::scratch(name);
            let (share, root) = (top.join("share"), top.join("root"));
            fs::create_dir_all(share.join("files")).unwrap();
            fs::create_dir_all(root.join("etc")).unwrap();
            fs::write(share.join("files/metadata.yaml"), metadata).unwrap();
            Self { share, root }
        }

        fn out(&self, name: &str, text: &str) {
            fs::write(self.share.join(format!("files/{name}.out")), text).unwrap();
        }

        fn apply(&self, flavour: Flavour) -> Applied {
            apply(&self.share, &self.root, flavour)
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
    fn new_files_are_made_with_their_directories_and_modes() {
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
    fn a_file_that_is_there_keeps_its_inode_and_but_for_lxd_its_mode() {
        for flavour in EACH {
            let world = World::new("there", "templates: {/etc/a: {template: t, mode: 600}}");
            fs::write(world.root.join("etc/a"), "something longer than the template").unwrap();
            fs::set_permissions(world.root.join("etc/a"), PermissionsExt::from_mode(0o640))
                .unwrap();
            let inode = fs::metadata(world.root.join("etc/a")).unwrap().ino();
            world.out("t", "new");
            assert!(world.apply(flavour).changed("etc/a"));
            let mode = if flavour == Flavour::Lxd { 0o644 } else { 0o640 };
            assert_eq!((world.text("etc/a").as_str(), world.mode("etc/a")), ("new", mode));
            assert_eq!(fs::metadata(world.root.join("etc/a")).unwrap().ino(), inode);
            let again = world.apply(flavour);
            assert!(again.wrote("etc/a") && !again.changed("etc/a"));
        }
    }

    #[test]
    fn create_only_keeps_what_is_there_even_a_dangling_link() {
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
    fn a_symbolic_link_is_followed_to_its_target() {
        let world = World::new("link", "templates: {/etc/a: {template: t}}");
        std::os::unix::fs::symlink("b", world.root.join("etc/a")).unwrap();
        world.out("t", "through");
        assert!(world.apply(Flavour::Lxd).wrote("etc/a"));
        assert_eq!(world.text("etc/b"), "through");
    }

    #[test]
    fn a_template_that_fails_does_not_stop_the_others() {
        let world = World::new(
            "fails",
            "templates:\n  /etc: {template: t}\n  /../x: {template: t}\n  /etc/fifo: {template: f}\n  \
             /etc/good: {template: t}\n  /etc/bad: {template: &a t}\n",
        );
        world.out("t", "text");
        let fifo = world.share.join("files/f.out");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let applied = world.apply(Flavour::Incus);
        assert_eq!(applied.written, ["etc/good"]);
        let troubles = applied.troubles.join("; ");
        for part in ["template /etc: ", "line 3", "template f: not a file", "line 6: an anchor"] {
            assert!(troubles.contains(part), "{part}: {troubles}");
        }
        assert_eq!(count(&world.share).unwrap_err().matches("anchor").count(), 1);
    }

    #[test]
    fn files_longer_than_a_piece_are_compared_and_copied_whole() {
        let world = World::new("long", "templates: {/a: {template: t}}");
        let text = "x".repeat(3 * PIECE + 7);
        world.out("t", &text);
        assert!(world.apply(Flavour::Lxd).changed("a"));
        assert!(!world.apply(Flavour::Lxd).changed("a"));
        fs::write(world.root.join("a"), format!("{}y", &text[1..])).unwrap();
        assert!(world.apply(Flavour::Lxd).changed("a"));
        assert_eq!(world.text("a"), text);
        assert_eq!(count(&world.share), Ok(1));
    }
}
