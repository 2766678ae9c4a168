//! The guest's own policy: options and files together (P§1.4). Incus' file for Incus, ours for every
//! server, both of the same shape; each can only take away.

use std::io::ErrorKind;
use std::path::Path;

use mote_agent::flavour::Flavour;
use mote_agent::policy::Policy;

use crate::iso::read_bounded;
use crate::options::Options;

/// For every server.
const OURS: &str = "etc/mote-agent.yml";
/// Where Incus' agent looks.
const INCUS: &str = "etc/incus-agent.yml";
/// Longest file, bytes; seven switches have 200.
const LONGEST: u64 = 64 * 1024;

/// What is allowed, and what was wrong with a file. One that cannot be read may have been meant to
/// deny anything, so it denies everything; Incus' agent does not start at all then.
pub(crate) fn find(options: &Options, flavour: Flavour) -> (Policy, Vec<String>) {
    let files: &[&str] = match flavour {
        Flavour::Incus => &[OURS, INCUS],
        Flavour::Lxd | Flavour::LxdOld => &[OURS],
    };
    let mut policy = options.policy;
    let mut troubles = Vec::new();
    for file in files {
        let path = options.root.join(file);
        match read(&path) {
            Ok(theirs) => policy = policy.and(theirs),
            Err(why) => {
                policy = Policy::NONE;
                let path = path.display();
                troubles.push(format!("{path}: {why}; the host may do nothing until it is mended"));
            }
        }
    }
    (policy, troubles)
}

fn read(path: &Path) -> Result<Policy, String> {
    match read_bounded(path, LONGEST) {
        Ok(text) => Policy::from_yaml(&text).map_err(|why| why.to_string()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Policy::ALL),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_options_add_up_and_a_broken_file_denies_everything() {
        let root = crate::share::scratch("policy");
        std::fs::create_dir_all(root.join("etc")).unwrap();
        let args = ["mote-agent", "--deny", "exec", "--root", root.to_str().unwrap()];
        let options = crate::options::parse(args.into_iter().map(Into::into)).unwrap();
        let of = |flavour| find(&options, flavour).0;
        assert_eq!(of(Flavour::Incus), Policy::without("exec").unwrap());
        std::fs::write(root.join(INCUS), "features:\n  exec: true\n  state: true\n").unwrap();
        assert_eq!(of(Flavour::Incus), Policy::only("state").unwrap());
        assert_eq!(of(Flavour::Lxd), Policy::without("exec").unwrap());
        std::fs::write(root.join(OURS), "features: {files: true}").unwrap();
        assert_eq!(of(Flavour::Incus), Policy::NONE);
        assert_eq!(of(Flavour::Lxd), Policy::only("files").unwrap());
        std::fs::write(root.join(OURS), "features: {files: &x true}").unwrap();
        let (policy, troubles) = find(&options, Flavour::Lxd);
        assert_eq!(policy, Policy::NONE);
        assert!(troubles[0].contains("line 1: an anchor is not supported"), "{troubles:?}");
    }
}
