//! Finds units of Go agents in the image. The drop-ins of mote's package keep systemd from starting
//! them. Otherwise the first agent to listen keeps the port, and the other one waits or exits.

use std::path::Path;

use rustix::fs::{FileType, Stat};

use crate::built;
use crate::sys::file;

/// Unit directories. The first one with a unit decides, as in systemd.
const PLACES: [&str; 2] = ["etc/systemd/system", "lib/systemd/system"];
const UNITS: [&str; 2] = ["incus-agent.service", "lxd-agent.service"];

/// Returns a message about another agent's unit, if there is one. A masked unit does not count.
pub(crate) fn left(root: &Path) -> Option<String> {
    let is_file = |found: &(Stat, _)| FileType::from_raw_mode(found.0.st_mode).is_file();
    let (_, unit) = UNITS.iter().filter(|_| built::STATE).find_map(|unit| {
        let mut places = PLACES.iter().map(|place| root.join(place).join(unit));
        places.find_map(|path| Some((file::stat(&path).ok()?, path))).filter(is_file)
    })?;
    Some(format!("{}: another agent's unit; remove it", unit.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_a_unit_unless_it_is_masked() {
        let root = crate::runtime::scratch("others");
        assert_eq!(left(&root), None);
        for place in PLACES {
            std::fs::create_dir_all(root.join(place)).unwrap();
        }
        let theirs = root.join("lib/systemd/system/lxd-agent.service");
        std::fs::write(&theirs, "").unwrap();
        let said = left(&root).unwrap_or_default();
        assert!(said.ends_with("lxd-agent.service: another agent's unit; remove it"), "{said}");
        let mask = root.join("etc/systemd/system/lxd-agent.service");
        std::os::unix::fs::symlink("/dev/null", mask).unwrap();
        assert_eq!(left(&root), None);
    }
}
