//! Shared directories: what to mount or unmount, from an entry of `agent-mounts.json` (P§1.8) or a
//! device event (P§4.3). How often to try and where the kernel stands is the shell's.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::flavour::Flavour;
use crate::json;
use crate::target::Target;

mod table;
mod tag;

pub use table::{Entry, entries, removable};
pub use tag::Hash;
use tag::tag;

/// Most mounts in `agent-mounts.json`; further ones are left out, with a log line.
pub const MOST: usize = 64;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Mount it, in the first of these ways that works.
    Mount {
        /// The device's mount tag.
        source: String,
        /// Where.
        target: String,
        /// How; there is at least one.
        ways: Vec<Way>,
        /// Also over something else that is mounted there (P§1.8: at start not, P§4.3: then yes).
        over: bool,
    },
    /// Unmount what is there.
    UnmountTarget(String),
    /// Unmount what comes from there.
    UnmountSource(String),
    /// Nothing: another kind of event, or of device.
    Nothing,
}

/// One way to mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// By which file system.
    pub kind: Kind,
    /// `MS_` flags of `mount(2)`.
    pub flags: u32,
    /// What is left for the file system itself, separated by commas.
    pub data: String,
}

/// File systems that shares come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// virtiofs.
    Virtiofs,
    /// 9p over virtio.
    Plan9,
}

impl Kind {
    /// As the kernel calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Virtiofs => "virtiofs",
            Self::Plan9 => "9p",
        }
    }

    /// The one with that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Virtiofs, Self::Plan9].into_iter().find(|kind| kind.name() == name)
    }
}

/// Why an entry or event is no mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadMount {
    /// Not JSON, or a member of the wrong kind.
    Shape,
    /// No tag to mount.
    Source,
    /// A path that is the root, or climbs.
    Target,
    /// No file system that shares come by.
    Kind,
}

impl fmt::Display for BadMount {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Shape => "not JSON of the shape expected",
            Self::Source => "no mount tag",
            Self::Target => "not a path to mount on",
            Self::Kind => "neither virtiofs nor 9p",
        })
    }
}

/// What `json` wants: an event if it has `type` and `metadata`, else an entry of the mount file.
///
/// # Errors
/// [`BadMount`].
pub fn wanted(flavour: Flavour, json: &[u8], hash: Hash) -> Result<Wanted, BadMount> {
    let shape = |_| BadMount::Shape;
    let kind = json::member(json, "type").map_err(shape)?;
    match (kind, json::member(json, "metadata").map_err(shape)?) {
        (Some(kind), Some(device)) if json::is_text(kind, "device") => event(flavour, device, hash),
        (Some(_), _) => Ok(Wanted::Nothing),
        (None, _) => at_start(flavour, json),
    }
}

/// A text member; `None` if there is none or `null`.
fn text(object: &[u8], key: &str) -> Result<Option<String>, BadMount> {
    match json::member(object, key).map_err(|_| BadMount::Shape)? {
        None | Some(b"null") => Ok(None),
        Some(raw) => string(raw).map(Some),
    }
}

fn string(raw: &[u8]) -> Result<String, BadMount> {
    let mut bytes = Vec::with_capacity(raw.len());
    let whole = json::unescape(raw, |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    });
    whole.map_err(|_| BadMount::Shape)?;
    String::from_utf8(bytes).map_err(|_| BadMount::Shape)
}

/// Each option by itself; the host joins some with commas.
fn options(object: &[u8]) -> Result<Vec<String>, BadMount> {
    let Some(list) = json::member(object, "options").map_err(|_| BadMount::Shape)? else {
        return Ok(Vec::new());
    };
    let mut all = Vec::new();
    for raw in json::elements(list) {
        let words = string(raw)?;
        all.extend(words.split(',').filter(|word| !word.is_empty()).map(String::from));
    }
    Ok(all)
}

fn target(path: &str) -> Result<String, BadMount> {
    Target::parse(path).map(|path| path.below_root().into()).ok_or(BadMount::Target)
}

fn at_start(flavour: Flavour, entry: &[u8]) -> Result<Wanted, BadMount> {
    let source = text(entry, "source")?.filter(|tag| is_tag(tag)).ok_or(BadMount::Source)?;
    let target = target(&text(entry, "target")?.unwrap_or_default())?;
    let kind = text(entry, "fstype")?.and_then(|name| Kind::parse(&name)).ok_or(BadMount::Kind)?;
    let options = options(entry)?;
    let given = Way::new(kind, &options);
    let ways = match (kind, flavour) {
        (Kind::Virtiofs, _) | (Kind::Plan9, Flavour::Incus) => Vec::from([given]),
        // LXD up to 6.6 says 9p and means: virtiofs first.
        (Kind::Plan9, Flavour::Lxd | Flavour::LxdOld) => {
            Vec::from([Way::new(Kind::Virtiofs, &options), given])
        }
    };
    Ok(Wanted::Mount { source, target, ways, over: false })
}

fn event(flavour: Flavour, device: &[u8], hash: Hash) -> Result<Wanted, BadMount> {
    // LXD 5.0 only passes these events on to the guest (P§4.3).
    if flavour == Flavour::LxdOld {
        return Ok(Wanted::Nothing);
    }
    let member = |key| json::member(device, key).map_err(|_| BadMount::Shape);
    let config = match member("config")? {
        Some(config) if config.starts_with(b"{") => config,
        Some(_) | None => return Ok(Wanted::Nothing),
    };
    let path = text(config, "path")?.unwrap_or_default();
    if text(config, "type")?.as_deref() != Some("disk") || path.is_empty() {
        return Ok(Wanted::Nothing);
    }
    let action = text(device, "action")?.unwrap_or_default();
    let name = text(device, "name")?.unwrap_or_default();
    let mount = member("mount")?.filter(|mount| mount.starts_with(b"{")).unwrap_or(b"{}");
    let source = match text(mount, "source")? {
        Some(source) if !source.is_empty() => source,
        Some(_) | None => tag(flavour, &name, hash),
    };
    match action.as_str() {
        "added" if !is_tag(&source) => Err(BadMount::Source),
        "added" => {
            let ways = Vec::from([Way::new(Kind::Virtiofs, &options(mount)?)]);
            Ok(Wanted::Mount { source, target: target(&path)?, ways, over: true })
        }
        "removed" if flavour == Flavour::Incus => Ok(Wanted::UnmountSource(source)),
        "removed" => target(&path).map(Wanted::UnmountTarget),
        _ => Ok(Wanted::Nothing),
    }
}

fn is_tag(tag: &str) -> bool {
    !tag.is_empty() && !tag.contains('\0')
}

impl Way {
    /// From options as `mount(8)` takes them.
    fn new(kind: Kind, options: &[String]) -> Self {
        let mut way = Self { kind, flags: 0, data: String::new() };
        for option in options {
            if let Some((_, set, clear)) = FLAGS.iter().find(|(name, ..)| name == option) {
                way.flags = way.flags & !clear | set;
                continue;
            }
            let of_9p = option.starts_with("trans=") || option.starts_with("msize=");
            if option.contains('\0') || (of_9p && kind == Kind::Virtiofs) {
                continue;
            }
            if !way.data.is_empty() {
                way.data.push(',');
            }
            way.data.push_str(option);
        }
        way
    }
}

/// Options that the kernel takes as flags (`linux/mount.h`): what each sets and clears.
const FLAGS: [(&str, u32, u32); 20] = [
    ("defaults", 0, 0),
    ("ro", 1, 0),
    ("rw", 0, 1),
    ("nosuid", 2, 0),
    ("suid", 0, 2),
    ("nodev", 4, 0),
    ("dev", 0, 4),
    ("noexec", 8, 0),
    ("exec", 0, 8),
    ("sync", 16, 0),
    ("async", 0, 16),
    ("dirsync", 128, 0),
    ("noatime", 1 << 10, 0),
    ("atime", 0, 1 << 10),
    ("nodiratime", 1 << 11, 0),
    ("diratime", 0, 1 << 11),
    ("silent", 1 << 15, 0),
    ("relatime", 1 << 21, 0),
    ("strictatime", 1 << 24, 0),
    ("lazytime", 1 << 25, 0),
];

#[cfg(test)]
mod tests;
