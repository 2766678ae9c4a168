//! An agent in an initramfs that has none: a second archive behind the first, which the kernel unpacks after it. Its
//! script starts the agent, and then the initramfs' own /init in its place.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// What the kernel runs first (`rdinit=`). Another shell would be one more thing to bring.
const SCRIPT: &str = "#!/bin/sh
PATH=/bin:/sbin:/usr/bin:/usr/sbin:/.mote
export PATH
[ -d /proc/self ] || { mkdir -p /proc; mount -t proc proc /proc; }
[ -d /sys/class ] || { mkdir -p /sys; mount -t sysfs sysfs /sys; }
[ -c /dev/null ] || { mkdir -p /dev; mount -t devtmpfs dev /dev; }
mkdir -p /run /tmp
for module in virtio_pci virtio_console virtio_blk; do modprobe -q $module 2>/dev/null; done
/.mote/mote-agent --initramfs </dev/null >/dev/console 2>&1 &
exec /init \"$@\"
";

/// The initramfs with the agent behind it.
pub(crate) fn with_agent(initrd: &Path, agent: &Path) -> Result<Vec<u8>> {
    let read = |path: &Path| fs::read(path).with_context(|| path.display().to_string());
    let mut all = read(initrd)?;
    // An archive begins at a multiple of four.
    all.resize(all.len().next_multiple_of(4), 0);
    let agent = read(agent)?;
    let directory = 0o040_755;
    let program = 0o100_755;
    for (number, (name, mode, content)) in [
        (".mote", directory, &[][..]),
        (".mote/init", program, SCRIPT.as_bytes()),
        (".mote/mote-agent", program, &agent),
        ("TRAILER!!!", 0, &[]),
    ]
    .into_iter()
    .enumerate()
    {
        entry(&mut all, number, name, mode, content)?;
    }
    Ok(all)
}

/// A file as `newc` has it.
fn entry(all: &mut Vec<u8>, number: usize, name: &str, mode: u32, content: &[u8]) -> Result<()> {
    let numbers =
        [number, usize::try_from(mode)?, 0, 0, 1, 0, content.len(), 0, 0, 0, 0, name.len() + 1, 0];
    all.extend(b"070701");
    for number in numbers {
        all.extend(format!("{:08X}", u32::try_from(number)?).bytes());
    }
    all.extend(name.bytes());
    all.push(0);
    all.resize(all.len().next_multiple_of(4), 0);
    all.extend(content);
    all.resize(all.len().next_multiple_of(4), 0);
    Ok(())
}
