//! The image of a directory as a CD (ISO 9660), for the config share and cloud-init's seed. Names
//! are exact, and modes are in Rock Ridge's `PX`. The owner is root and times are 0, so the same
//! files give the same bytes. The tables of directories are missing, which Linux never reads.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, bail};

const SECTOR: usize = 2048;
/// Position of the two descriptors.
const DESCRIPTORS: usize = 16;
const FIRST: usize = 18;
/// Maximum depth of the tree. A share has one level.
const DEEPEST: usize = 8;

/// A file or directory.
struct Node {
    name: Vec<u8>,
    mode: u32,
    content: Content,
    at: usize,
}

enum Content {
    File(Vec<u8>),
    Directory(Vec<Node>),
}

pub fn image(directory: &Path, label: &str) -> Result<Vec<u8>> {
    let mut root = Node::read(directory, Vec::new(), DEEPEST)?;
    let mut next = FIRST;
    root.place(&mut next);
    let mut image = vec![0; next * SECTOR];
    put(&mut image, DESCRIPTORS, &descriptor(&root, label, next)?);
    put(&mut image, DESCRIPTORS + 1, b"\xffCD001\x01");
    root.write(&mut image, &root)?;
    Ok(image)
}

fn put(image: &mut [u8], sector: usize, bytes: &[u8]) {
    let at = sector * SECTOR;
    if let Some(room) = image.get_mut(at..at + bytes.len()) {
        room.copy_from_slice(bytes);
    }
}

impl Node {
    fn read(path: &Path, name: Vec<u8>, levels: usize) -> Result<Self> {
        let here = || path.display().to_string();
        let about = fs::metadata(path).with_context(here)?;
        let content = if about.is_dir() {
            let Some(levels) = levels.checked_sub(1) else { bail!("{} is too deep", here()) };
            let mut nodes = Vec::new();
            for entry in fs::read_dir(path).with_context(here)? {
                let entry = entry.with_context(here)?;
                let name = entry.file_name().as_bytes().to_vec();
                // Ignore files that are still being written.
                if !name.ends_with(b".new") {
                    nodes.push(Self::read(&entry.path(), name, levels)?);
                }
            }
            nodes.sort_by(|one, other| one.name.cmp(&other.name));
            Content::Directory(nodes)
        } else {
            Content::File(fs::read(path).with_context(here)?)
        };
        Ok(Self { name, mode: about.mode(), content, at: 0 })
    }

    fn length(&self) -> usize {
        match &self.content {
            Content::File(bytes) => bytes.len(),
            Content::Directory(nodes) => {
                let names = [&[0][..], &[1]].into_iter();
                let names = names.chain(nodes.iter().map(|node| node.name.as_slice()));
                let mut end = 0;
                for (number, name) in names.enumerate() {
                    let length = record_length(name, number == 0);
                    end = fitting(end, length) + length;
                }
                end.div_ceil(SECTOR) * SECTOR
            }
        }
    }

    fn place(&mut self, next: &mut usize) {
        self.at = *next;
        *next += self.length().div_ceil(SECTOR).max(1);
        if let Content::Directory(nodes) = &mut self.content {
            nodes.iter_mut().for_each(|node| node.place(next));
        }
    }

    fn write(&self, image: &mut [u8], parent: &Self) -> Result<()> {
        let nodes = match &self.content {
            Content::File(bytes) => {
                put(image, self.at, bytes);
                return Ok(());
            }
            Content::Directory(nodes) => nodes,
        };
        let mut bytes = Vec::new();
        let itself = [(&[0][..], self), (&[1], parent)].into_iter();
        let all = itself.chain(nodes.iter().map(|node| (node.name.as_slice(), node)));
        for (number, (name, node)) in all.enumerate() {
            let record = node.record(name, number == 0)?;
            bytes.resize(fitting(bytes.len(), record.len()), 0);
            bytes.extend(record);
        }
        put(image, self.at, &bytes);
        nodes.iter().try_for_each(|node| node.write(image, self))
    }

    fn record(&self, name: &[u8], is_first: bool) -> Result<Vec<u8>> {
        let length = record_length(name, is_first);
        let mut record = vec![u8::try_from(length).context("a name is too long")?, 0];
        record.extend(both_u32(self.at)?);
        record.extend(both_u32(self.length())?);
        record.extend([0; 7]);
        let is_directory = matches!(self.content, Content::Directory(_));
        record.extend([if is_directory { 2 } else { 0 }, 0, 0]);
        record.extend(both_u16(1));
        record.push(u8::try_from(name.len())?);
        record.extend(name);
        record.resize(33 + name.len() + (name.len() + 1) % 2, 0);
        if is_first {
            record.extend(b"SP\x07\x01\xbe\xef\x00");
        }
        record.extend(b"PX\x24\x01");
        for number in [usize::try_from(self.mode)?, 1, 0, 0] {
            record.extend(both_u32(number)?);
        }
        record.resize(length, 0);
        Ok(record)
    }
}

/// Returns the length of a record, which is even.
fn record_length(name: &[u8], is_first: bool) -> usize {
    let own = 33 + name.len() + (name.len() + 1) % 2;
    let more = 36 + if is_first { 7 } else { 0 };
    (own + more).next_multiple_of(2)
}

/// Returns the start of a record, which must not cross the end of a sector.
fn fitting(at: usize, length: usize) -> usize {
    if at % SECTOR + length > SECTOR { at.next_multiple_of(SECTOR) } else { at }
}

fn both_u32(number: usize) -> Result<[u8; 8]> {
    let number = u32::try_from(number)?;
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    Ok(bytes)
}

fn both_u16(number: u16) -> [u8; 4] {
    let (little, big) = (number.to_le_bytes(), number.to_be_bytes());
    [little[0], little[1], big[0], big[1]]
}

fn descriptor(root: &Node, label: &str, sectors: usize) -> Result<Vec<u8>> {
    let text = |text: &str, length: usize| format!("{text:length$}").into_bytes();
    let mut bytes = b"\x01CD001\x01\x00".to_vec();
    bytes.extend(text("", 32));
    bytes.extend(text(label, 32));
    bytes.extend([0; 8]);
    bytes.extend(both_u32(sectors)?);
    bytes.extend([0; 32]);
    for number in [1, 1, u16::try_from(SECTOR)?] {
        bytes.extend(both_u16(number));
    }
    bytes.extend([0; 24]);
    // This record has no Rock Ridge, whose data is in the root's own directory.
    let mut record = root.record(&[0], false)?;
    record.truncate(34);
    record[0] = 34;
    bytes.extend(record);
    bytes.extend(text("", 128 * 4 + 37 * 3));
    for _ in 0..4 {
        bytes.extend(b"0000000000000000\x00");
    }
    bytes.extend([1, 0]);
    bytes.resize(SECTOR, 0);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_its_label_and_files() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path();
        fs::create_dir(directory.join("files")).unwrap();
        fs::write(directory.join("agent-mounts.json"), "[]").unwrap();
        fs::write(directory.join("agent.conf.new"), "half").unwrap();
        fs::write(directory.join("files/metadata.yaml"), vec![b'y'; 5000]).unwrap();
        let image = image(directory, "incus-agent").unwrap();
        let volume = &image[DESCRIPTORS * SECTOR..];
        assert_eq!(&volume[..8], b"\x01CD001\x01\x00");
        assert_eq!(&volume[40..72], b"incus-agent                     ");
        assert_eq!(image.len() % SECTOR, 0);
        assert_eq!(volume[80..84], u32::try_from(image.len() / SECTOR).unwrap().to_le_bytes());
        let root = &image[FIRST * SECTOR..][..SECTOR];
        let has = |name: &[u8]| root.windows(name.len()).any(|found| found == name);
        assert!(has(b"agent-mounts.json") && has(b"files") && !has(b"agent.conf"));
        assert!(image.windows(5000).any(|found| found.iter().all(|byte| *byte == b'y')));
    }

    #[test]
    fn records_do_not_cross_sectors() {
        assert_eq!((fitting(0, 100), fitting(2000, 48), fitting(2000, 50)), (0, 2000, 2048));
        assert_eq!(record_length(&[0], true) % 2 + record_length(b"ab", false) % 2, 0);
    }
}
