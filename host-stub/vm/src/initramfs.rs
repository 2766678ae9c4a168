//! Adds an agent to an initramfs: a second archive after the first, which the kernel unpacks after
//! it. Its script starts the agent, then executes the initramfs' own /init.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use cpio::newc::{Builder, Reader, trailer};

use mote_client::common::printable::quoted;

/// The program that the kernel runs first (`rdinit=`), without the lines of its shell and
/// of the init that it executes.
const SCRIPT: &str = include_str!("initramfs.sh");
/// The usual shell, and its replacement in an initramfs where busybox has not created its links
/// yet.
const SHELL: &str = "#!/bin/sh\n";
const BUSYBOX: &str = "#!/bin/busybox sh
mkdir() { /bin/busybox mkdir \"$@\"; }
mount() { /bin/busybox mount \"$@\"; }
modprobe() { /bin/busybox modprobe \"$@\"; }
";
/// Compressed archives: their first bytes, and the program that unpacks them.
const PACKED: [(&[u8], &str); 5] = [
    (b"\x1f\x8b", "gzip"),
    (b"\xfd7zXZ", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x02\x21\x4c\x18", "lz4"),
    (b"BZh", "bzip2"),
];
/// The first bytes of an entry.
const MAGIC: &[u8] = b"07070";

/// Returns the initramfs with the agent after it.
///
/// `init` is the initramfs' program that is started after the agent.
pub fn with_agent(initrd: &Path, agent: &Path, init: &str) -> Result<Vec<u8>> {
    let read = |path: &Path| fs::read(path).with_context(|| path.display().to_string());
    let mut all = read(initrd)?;
    let names = names(initrd, &all).with_context(|| initrd.display().to_string())?;
    let has = |file: &str| names.iter().any(|name| name.trim_start_matches("./") == file);
    let shell = match () {
        () if has("bin/sh") || has("usr/bin/sh") => SHELL,
        () if has("bin/busybox") => BUSYBOX,
        () => bail!("{} has no shell, which --mote needs", initrd.display()),
    };
    // An archive begins at a multiple of four.
    all.resize(all.len().next_multiple_of(4), 0);
    let (script, agent) = (format!("{shell}init={}\n{SCRIPT}", quoted(init)), read(agent)?);
    let (directory, program) = (0o040_755, 0o100_755);
    entry(&mut all, 1, ".mote", directory, &[])?;
    entry(&mut all, 2, ".mote/init", program, script.as_bytes())?;
    entry(&mut all, 3, ".mote/mote-agent", program, &agent)?;
    Ok(trailer(all)?)
}

fn entry(all: &mut Vec<u8>, number: u32, name: &str, mode: u32, content: &[u8]) -> Result<()> {
    let entry = Builder::new(name).ino(number).mode(mode);
    let mut writer = entry.write(all, content.len().try_into()?);
    writer.write_all(content)?;
    writer.finish()?;
    Ok(())
}

/// Returns the names in an initramfs: a sequence of archives, of which the last may be compressed.
fn names(path: &Path, bytes: &[u8]) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let rest = list(bytes, &mut names);
    let Some((_, program)) = PACKED.iter().find(|(begin, _)| rest.starts_with(begin)) else {
        return Ok(names);
    };
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(u64::try_from(bytes.len() - rest.len())?))?;
    let mut unpack = Command::new(program);
    unpack.arg("-dc").stdin(file).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut unpack = unpack.spawn().with_context(|| format!("{program} is needed to read it"))?;
    let mut unpacked = Vec::new();
    if let Some(mut out) = unpack.stdout.take() {
        out.read_to_end(&mut unpacked)?;
    }
    // The program fails on data after the last archive, but what was read is valid.
    let _read = unpack.wait()?;
    list(&unpacked, &mut names);
    Ok(names)
}

/// Adds the names of archives that are not packed; returns what follows them.
fn list<'a>(mut bytes: &'a [u8], names: &mut Vec<String>) -> &'a [u8] {
    while bytes.starts_with(MAGIC) {
        let Ok(entry) = Reader::new(bytes) else { return bytes };
        let (name, is_last) = (entry.entry().name().to_owned(), entry.entry().is_trailer());
        let Ok(rest) = entry.finish() else { return &[] };
        bytes = rest;
        if is_last {
            // Zeros fill the space before the next archive.
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            bytes = bytes.get(zeros..).unwrap_or_default();
        } else {
            names.push(name);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appends_an_agent_that_the_images_shell_starts() {
        let directory = tempfile::tempdir().unwrap();
        let [initrd, agent] = ["initrd", "agent"].map(|name| directory.path().join(name));
        fs::write(&agent, "the agent").unwrap();
        for (file, expected) in
            [("bin/busybox", Some(BUSYBOX)), ("./bin/sh", Some(SHELL)), ("x", None)]
        {
            let mut archive = Vec::new();
            entry(&mut archive, 1, "init", 0o100_755, b"script").unwrap();
            entry(&mut archive, 2, file, 0o100_755, b"").unwrap();
            let mut archive = trailer(archive).unwrap();
            archive.resize(512, 0);
            fs::write(&initrd, &archive).unwrap();
            let made = with_agent(&initrd, &agent, "/init");
            let Some(expected) = expected else {
                let why = made.unwrap_err().to_string();
                assert!(why.ends_with("has no shell, which --mote needs"), "{why}");
                continue;
            };
            let made = made.unwrap();
            let mut found = Vec::new();
            assert_eq!(list(&made, &mut found), b"");
            assert_eq!(found, ["init", file, ".mote", ".mote/init", ".mote/mote-agent"]);
            let made = String::from_utf8(made).unwrap();
            assert!(made.contains(&format!("{expected}init=/init\n# ")));
        }
    }
}
