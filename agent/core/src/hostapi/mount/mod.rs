//! Shared directories: decides what to mount or unmount, from an entry of `agent-mounts.json`
//! (P§1.8) or a device event (P§4.3), and reads the mount table. The shell does retries and system
//! calls.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::base64::base64;
use crate::flavour::Flavour;
use crate::guest_path::Target;
use crate::json::Value;
use crate::named::named;
use crate::report::proc::mounts::{Mounted, is_over, unescape};
use crate::report::proc::number;

/// Maximum number of entries in `agent-mounts.json`; further ones are skipped and logged.
pub const MAX_MOUNTS: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Mount a share in the first way that works.
    Mount {
        source: String,
        /// Mount point, without the leading slash.
        target: String,
        /// Ways to try in order; at least one.
        ways: Vec<Way>,
        /// Whether to mount over another mount: after an event (P§4.3), not at start (P§1.8).
        over: bool,
    },
    UnmountTarget(String),
    /// Unmount all shares with this mount tag.
    UnmountSource(String),
    /// Do nothing: the event or device is of another kind.
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    pub kind: Kind,
    /// `MS_` flags of mount(2).
    pub flags: u32,
    /// Other options, for the file system, separated by commas.
    pub data: String,
}

named! {
    pub enum Kind {
        Virtiofs "virtiofs",
        /// 9p over virtio.
        Plan9 "9p",
    }
}

named! {
    pub enum BadMount {
        /// The document is not JSON, or a member has the wrong type.
        Shape "unexpected JSON structure",
        /// The mount tag is missing, empty, or contains a NUL.
        Source "no mount tag",
        /// The mount point is empty or the root.
        Target "not a valid mount point",
        Climbs "Path must not contain '..'",
        Kind "neither virtiofs nor 9p",
    }
}

/// Reads `document`: an event if it has a `type`, else an entry of `agent-mounts.json`.
/// Errors: any [`BadMount`].
pub fn wanted(flavour: Flavour, document: Value<'_>, hash: Hash) -> Result<Wanted, BadMount> {
    match (document.member("type"), document.member("metadata")) {
        (Some(kind), Some(device)) if kind.is("device") => event(flavour, device, hash),
        (Some(_), _) => Ok(Wanted::Nothing),
        (None, _) => at_start(flavour, document),
    }
}

/// Returns whether the host expects an error (P§4.3) if this event fails.
pub fn is_answered(flavour: Flavour, event: Value<'_>) -> bool {
    let action = event.member("metadata").and_then(|device| device.member("action"));
    flavour == Flavour::Lxd && action.is_some_and(|action| action.is("added"))
}

/// Returns the text of the error that the host expects, if the event itself is refused.
pub fn refusal(event: Value<'_>, why: BadMount) -> String {
    let config = event.member("metadata").and_then(|device| device.member("config"));
    let path = config.and_then(|config| text(config.member("path")).ok().flatten());
    match (why, path) {
        (BadMount::Climbs | BadMount::Target, Some(path)) => {
            format!("Invalid path \"{path}\": {why}")
        }
        _ => format!("Invalid device event: {why}"),
    }
}

fn text(value: Option<Value<'_>>) -> Result<Option<String>, BadMount> {
    value.map(string).transpose()
}

fn string(value: Value<'_>) -> Result<String, BadMount> {
    value.string().map_err(|_| BadMount::Shape)
}

/// Returns the options one by one; the host joins some of them with commas.
fn options(list: Option<Value<'_>>) -> Result<Vec<String>, BadMount> {
    let mut all = Vec::new();
    for words in list.unwrap_or(Value::NULL).elements() {
        let words = string(words)?;
        all.extend(words.split(',').filter(|word| !word.is_empty()).map(String::from));
    }
    Ok(all)
}

fn target(path: &str) -> Result<String, BadMount> {
    let climbs = path.split('/').any(|part| part == "..");
    let why = if climbs { BadMount::Climbs } else { BadMount::Target };
    Target::parse(path).map(|path| path.below_root().into()).ok_or(why)
}

fn at_start(flavour: Flavour, entry: Value<'_>) -> Result<Wanted, BadMount> {
    let fields = entry.fields(["source", "target", "fstype", "options"]);
    let [source, at, kind, list] = fields.map_err(|_| BadMount::Shape)?;
    let source = text(source)?.filter(|tag| is_tag(tag)).ok_or(BadMount::Source)?;
    let target = target(&text(at)?.unwrap_or_default())?;
    let kind = text(kind)?.and_then(|name| Kind::parse(&name)).ok_or(BadMount::Kind)?;
    let options = options(list)?;
    let given = Way::new(kind, &options);
    let ways = match (kind, flavour) {
        (Kind::Virtiofs, _) | (Kind::Plan9, Flavour::Incus) => Vec::from([given]),
        // LXD up to 6.6 names 9p, and its agent tries virtiofs first.
        (Kind::Plan9, Flavour::Lxd | Flavour::LxdOld) => {
            Vec::from([Way::new(Kind::Virtiofs, &options), given])
        }
    };
    Ok(Wanted::Mount { source, target, ways, over: false })
}

fn event(flavour: Flavour, device: Value<'_>, hash: Hash) -> Result<Wanted, BadMount> {
    // LXD 5.0 only passes these events on to the guest (P§4.3).
    if flavour == Flavour::LxdOld {
        return Ok(Wanted::Nothing);
    }
    let shape = |_| BadMount::Shape;
    let fields = device.fields(["config", "action", "name", "mount"]);
    let [config, action, name, mount] = fields.map_err(shape)?;
    let Some(config) = config.filter(|config| config.is_object()) else {
        return Ok(Wanted::Nothing);
    };
    let [path, kind] = config.fields(["path", "type"]).map_err(shape)?;
    let path = text(path)?.unwrap_or_default();
    if text(kind)?.as_deref() != Some("disk") || path.is_empty() {
        return Ok(Wanted::Nothing);
    }
    let action = text(action)?.unwrap_or_default();
    let name = text(name)?.unwrap_or_default();
    let mount = mount.filter(|mount| mount.is_object()).unwrap_or(Value::EMPTY);
    let [source, list] = mount.fields(["source", "options"]).map_err(shape)?;
    let source = match text(source)? {
        Some(source) if !source.is_empty() => source,
        Some(_) | None => tag(flavour, &name, hash),
    };
    match action.as_str() {
        "added" if !is_tag(&source) => Err(BadMount::Source),
        "added" => {
            let ways = Vec::from([Way::new(Kind::Virtiofs, &options(list)?)]);
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
    /// Creates a way from options of mount(8).
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

/// Options that are flags of mount(2) (`linux/mount.h`): name, bits to set, bits to clear.
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

/// SHA-256, provided by the shell.
pub type Hash = fn(&[u8]) -> [u8; 32];

/// Maximum length of LXD's tags, in bytes with the prefix.
const LXD: usize = 31;
/// Maximum length of a name in Incus' tags, in bytes without the prefix. Incus' own agent does not
/// hash names (P§9.12).
const INCUS: usize = 30;
/// Returns the mount tag of a hot-plugged device whose event has none (P§1.8). If a name is too
/// long for a tag, the host uses its hash.
fn tag(flavour: Flavour, device: &str, hash: Hash) -> String {
    let (prefix, name, most) = match flavour {
        Flavour::Incus => ("incus_", device.into(), INCUS),
        Flavour::Lxd | Flavour::LxdOld => {
            let prefix = "lxd_";
            (prefix, device.replace("-", "--").replace("/", "-"), LXD - prefix.len())
        }
    };
    let mut out = String::from(prefix);
    if name.len() > most {
        // Use the URL-safe digits (RFC 4648 §5).
        out.extend(base64(&hash(name.as_bytes()), ['-', '_']).take(most));
    } else {
        out.push_str(&name);
    }
    out
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The mount's ID, unique while it is mounted.
    pub id: u64,
    pub point: String,
    pub kind: String,
    /// The mounted device; for a share its mount tag.
    pub source: String,
}

/// Returns the mounts in the order of mounting. Skips lines that are malformed or not UTF-8.
pub fn entries(table: &[u8]) -> impl DoubleEndedIterator<Item = Entry> {
    let text = |field: &[u8]| String::from_utf8(unescape(field).collect()).ok();
    table.split(|byte| *byte == b'\n').filter_map(move |line| {
        let Mounted { id, point, kind, source, .. } = Mounted::parse(line)?;
        Some(Entry {
            id: number(id)?,
            point: text(point)?,
            kind: text(kind)?,
            source: text(source)?,
        })
    })
}

/// Returns the shares for which `chosen` is true, latest first, each with the mount that covers it,
/// if any. A covering mount prevents unmounting: umount(2) removes the latest mount at a path.
pub fn shares(
    table: &[Entry],
    chosen: impl Fn(&Entry) -> bool,
) -> impl Iterator<Item = (&Entry, Option<&Entry>)> {
    table.iter().enumerate().rev().filter_map(move |(at, entry)| {
        let is_share = Kind::parse(&entry.kind).is_some() && chosen(entry);
        let mut later = table.iter().skip(at + 1).rev();
        let cover = later.find(|later| is_over(later.point.as_bytes(), entry.point.as_bytes()));
        is_share.then_some((entry, cover))
    })
}

#[cfg(test)]
mod tests;
