//! The root disk on the command line.

use std::path::PathBuf;

use anyhow::Result;

/// Returns a disk image and its format, which is never detected from its content.
pub fn root_disk(said: &str) -> Result<(PathBuf, String)> {
    const FORMATS: [&str; 2] = ["raw", "qcow2"];
    let (file, format) = match said.rsplit_once('=') {
        Some((file, format)) if FORMATS.contains(&format) => (file, format),
        _ if said.ends_with(".qcow2") => (said, "qcow2"),
        _ => (said, "raw"),
    };
    Ok((std::path::absolute(file)?, format.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_the_given_format_or_the_file_extension() {
        let of = |said: &str| {
            let (file, format) = root_disk(said).unwrap();
            (file.to_str().unwrap().to_owned(), format)
        };
        for (said, file, format) in [
            ("/a.img", "/a.img", "raw"),
            ("/a.qcow2", "/a.qcow2", "qcow2"),
            ("/a.qcow2=raw", "/a.qcow2", "raw"),
            ("/a=b", "/a=b", "raw"),
            ("/a=b=qcow2", "/a=b", "qcow2"),
        ] {
            assert_eq!(of(said), (file.to_owned(), format.to_owned()), "{said}");
        }
    }
}
