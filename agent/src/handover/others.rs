//! Units of Go agents that were left in an image. systemd does not start them beside mote where the drop-ins of its
//! package are; elsewhere the first agent to listen keeps the port, and the other waits or ends.

use std::path::Path;

use crate::built;

/// Where units are; the first that has one decides, as for systemd.
const PLACES: [&str; 2] = ["etc/systemd/system", "lib/systemd/system"];
const UNITS: [&str; 2] = ["incus-agent.service", "lxd-agent.service"];

/// What to say about the unit of another agent, if there is one. A masked one is none.
pub(crate) fn left(root: &Path) -> Option<String> {
    let unit = UNITS.iter().filter(|_| built::STATE).find_map(|unit| {
        let mut places = PLACES.iter().map(|place| root.join(place).join(unit));
        places.find(|path| path.exists()).filter(|path| path.is_file())
    })?;
    Some(format!("{}: the unit of another agent: remove it", unit.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_named_unless_it_is_masked() {
        let root = crate::runtime::scratch::scratch("others");
        assert_eq!(left(&root), None);
        for place in PLACES {
            std::fs::create_dir_all(root.join(place)).unwrap();
        }
        let theirs = root.join("lib/systemd/system/lxd-agent.service");
        std::fs::write(&theirs, "").unwrap();
        let said = left(&root).unwrap_or_default();
        assert!(
            said.ends_with("lxd-agent.service: the unit of another agent: remove it"),
            "{said}"
        );
        let mask = root.join("etc/systemd/system/lxd-agent.service");
        std::os::unix::fs::symlink("/dev/null", mask).unwrap();
        assert_eq!(left(&root), None);
    }
}
