//! The guest's own policy, from options and files (P§1.4): mote's file for every server, and Incus' file
//! under Incus, in the same format. Each can only deny more. An unknown key in either file denies
//! everything; Incus' own agent ignores it.

use std::fmt::Write;
use std::io::ErrorKind;
use std::path::Path;

use mote_core::flavour::Flavour;
use mote_core::hostapi::policy::Policy;

use crate::cli::options::Options;
use crate::runtime::small_files::read_bounded;

/// Policy file for every server.
const OURS: &str = "etc/mote-agent.yml";
/// Policy file of Incus' agent.
const INCUS: &str = "etc/incus-agent.yml";
/// Longest file, bytes; all seven features take about 200.
const LONGEST: u64 = 64 * 1024;

/// The policy, and what is wrong with its files. A file that cannot be read denies everything, since it
/// may have been meant to; Incus' agent does not start with one.
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
                troubles.push(format!("{path}: {why}; everything is denied until this is fixed"));
            }
        }
    }
    (policy, troubles)
}

/// The policy and the errors of its files in one line, for the status file.
pub(crate) fn describe(policy: Policy, troubles: &[String]) -> String {
    let mut out = policy.to_string();
    for trouble in troubles {
        out.push_str("; ");
        out.push_str(trouble);
    }
    out
}

fn read(path: &Path) -> Result<Policy, String> {
    match read_bounded(path, LONGEST) {
        Ok(text) => {
            let mut faults = String::new();
            let policy = Policy::from_yaml(&text, &mut |fault| {
                let between = if faults.is_empty() { "" } else { "; " };
                let _infallible = write!(faults, "{between}{fault}");
            });
            if faults.is_empty() { Ok(policy) } else { Err(faults) }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Policy::ALL),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_options_add_up_and_a_broken_file_denies_everything() {
        let root = crate::runtime::scratch::scratch("policy");
        std::fs::create_dir_all(root.join("etc")).unwrap();
        let args = ["mote-agent", "--deny", "exec", "--root", root.to_str().unwrap()];
        let options = crate::cli::options::parse(args.into_iter().map(Into::into)).unwrap();
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
        std::fs::write(root.join(OURS), "feature: {files: true}").unwrap();
        let (policy, troubles) = find(&options, Flavour::Lxd);
        let text = describe(policy, &troubles);
        assert!(text.starts_with("denied: guestapi exec files"), "{text}");
        assert!(text.contains("etc/mote-agent.yml: line 1: unknown key \"feature\""), "{text}");
    }
}
