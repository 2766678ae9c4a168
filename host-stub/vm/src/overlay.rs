//! Creates a qcow2 image on top of another image, which stays unchanged, like `qemu-img create -b`.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};

const CLUSTER_BITS: u32 = 16;
const CLUSTER: u64 = 1 << CLUSTER_BITS;
const MAGIC: [u8; 4] = *b"QFI\xfb";
/// Length of the header, in bytes.
const HEADER: u32 = 104;
/// Type of the header extension with the other disk's format.
const BACKING_FORMAT: u32 = 0xe279_2aca;
/// Bytes of the disk per table of the second level.
const BY_TABLE: u64 = CLUSTER * (CLUSTER / 8);

/// Creates an image of the other disk's size.
pub fn create(path: &Path, base: &Path, format: &str) -> Result<()> {
    let size = size(base, format).with_context(|| base.display().to_string())?;
    let base = base.to_str().context("the disk's path is not UTF-8")?;
    fs::write(path, image(size, base, format)?).with_context(|| path.display().to_string())
}

fn size(base: &Path, format: &str) -> Result<u64> {
    let mut file = File::open(base)?;
    if format == "raw" {
        return Ok(file.metadata()?.len().next_multiple_of(512));
    }
    let mut header = [0; 32];
    file.read_exact(&mut header)?;
    if !header.starts_with(&MAGIC) {
        bail!("not a qcow2 image");
    }
    let mut size = [0; 8];
    size.copy_from_slice(&header[24..32]);
    Ok(u64::from_be_bytes(size))
}

/// Returns a header, then one cluster each for the table of reference counts and the counts, then
/// the first table.
fn image(size: u64, base: &str, format: &str) -> Result<Vec<u8>> {
    let entries = size.div_ceil(BY_TABLE).max(1);
    let clusters = 3 + (entries * 8).div_ceil(CLUSTER);
    let name = u64::from(HEADER) + 8 + 8 + 8;
    let mut bytes = MAGIC.to_vec();
    let word = |bytes: &mut Vec<u8>, number: u32| bytes.extend(number.to_be_bytes());
    let long = |bytes: &mut Vec<u8>, number: u64| bytes.extend(number.to_be_bytes());
    word(&mut bytes, 3);
    long(&mut bytes, name);
    word(&mut bytes, u32::try_from(base.len()).context("the disk's path is too long")?);
    word(&mut bytes, CLUSTER_BITS);
    long(&mut bytes, size);
    word(&mut bytes, 0);
    word(&mut bytes, u32::try_from(entries).context("the disk is too large")?);
    long(&mut bytes, 3 * CLUSTER);
    long(&mut bytes, CLUSTER);
    word(&mut bytes, 1);
    word(&mut bytes, 0);
    // The image has no snapshots and no features, and reference counts of 16 bits.
    bytes.extend([0; 8 + 3 * 8]);
    word(&mut bytes, 4);
    word(&mut bytes, HEADER);
    word(&mut bytes, BACKING_FORMAT);
    word(&mut bytes, u32::try_from(format.len())?);
    bytes.extend(format.bytes());
    bytes.resize(usize::try_from(name)?, 0);
    if format.len() > 8 || base.len() > 1023 {
        bail!("the disk's path is too long");
    }
    bytes.extend(base.bytes());
    let cluster = usize::try_from(CLUSTER)?;
    bytes.resize(cluster, 0);
    long(&mut bytes, 2 * CLUSTER);
    bytes.resize(2 * cluster, 0);
    for _ in 0..clusters {
        bytes.extend(1u16.to_be_bytes());
    }
    bytes.resize(usize::try_from(clusters)? * cluster, 0);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlay_has_the_size_of_its_base() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("overlay");
        fs::write(&path, image(3 << 30, "/base", "raw").unwrap()).unwrap();
        assert_eq!(size(&path, "qcow2").unwrap(), 3 << 30);
        assert_eq!(fs::metadata(&path).unwrap().len(), 4 * CLUSTER);
        fs::write(&path, [1; 1000]).unwrap();
        assert_eq!(size(&path, "raw").unwrap(), 1024);
        assert!(size(&path, "qcow2").is_err());
    }
}
