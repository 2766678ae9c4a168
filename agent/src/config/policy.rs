//! The guest's own policy, from options and files (P§1.4): mote's file for every server, and Incus' file
//! under Incus. Each can only deny more. An unknown key in either file denies everything; Incus' own agent
//! ignores it.
//!
//! It is read before anything of the host's is touched. The flavour, by which Incus' file counts or not, is
//! known later, by what the host shows: until then, and if nothing tells it, that file restricts too.

use std::fmt::Write;
use std::io::ErrorKind;
use std::path::Path;

use mote_core::flavour::Flavour;
use mote_core::hostapi::policy::{Features, Policy, Whose};

use crate::built;
use crate::cli::options::Options;
use crate::runtime::small_files::read_bounded;

/// The policy's files, relative to the root: that for every server, and that of Incus' agent.
pub(crate) const FILES: [&str; 2] = ["etc/mote-agent.yml", "etc/incus-agent.yml"];
/// Longest file, bytes; all features take about 200, and 64 items for each limit hardly more than 20,000.
const LONGEST: u64 = 64 * 1024;

/// What options and files say.
pub(crate) struct Found {
    options: Features,
    ours: One,
    incus: One,
}

/// What one file says; nothing is allowed if there is something wrong with it.
struct One {
    policy: Policy,
    trouble: Option<String>,
}

/// Reads both files. A file that cannot be read denies everything, since it may have been meant to; Incus' agent
/// does not start with one.
pub(crate) fn read(options: &Options) -> Found {
    let [ours, incus] = FILES;
    Found {
        options: options.features,
        ours: read_one(&options.root, ours, Whose::Mote),
        incus: read_one(&options.root, incus, Whose::Incus),
    }
}

impl Found {
    /// What is allowed under this flavour, or while it is not known.
    pub(crate) fn features(&self, flavour: Option<Flavour>) -> Features {
        let all = self.options.and(self.ours.policy.features);
        if is_incus_file_used(flavour) { all.and(self.incus.policy.features) } else { all }
    }

    /// The policy under this flavour, and what is wrong with its files.
    pub(crate) fn under(self, flavour: Option<Flavour>) -> (Policy, Vec<String>) {
        let features = self.features(flavour);
        let incus = self.incus.trouble.filter(|_| is_incus_file_used(flavour));
        let mut policy = self.ours.policy;
        policy.features = features;
        (policy, self.ours.trouble.into_iter().chain(incus).collect())
    }
}

fn is_incus_file_used(flavour: Option<Flavour>) -> bool {
    matches!(flavour, None | Some(Flavour::Incus))
}

/// The policy and the errors of its files in one line, for the status file.
pub(crate) fn describe(policy: &Policy, troubles: &[String]) -> String {
    let mut out = policy.to_string();
    for trouble in troubles {
        out.push_str("; ");
        out.push_str(trouble);
    }
    out
}

#[inline(never)] // its size
fn read_one(root: &Path, file: &str, whose: Whose) -> One {
    let path = root.join(file);
    let mut faults = String::new();
    let policy = match read_bounded(&path, LONGEST) {
        Ok(text) => Policy::from_yaml(&text, whose, built::LIMITS, &mut |fault| {
            let between = if faults.is_empty() { "" } else { "; " };
            let _infallible = write!(faults, "{between}{fault}");
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => Features::ALL.into(),
        Err(error) => {
            faults = error.to_string();
            Features::NONE.into()
        }
    };
    let trouble = (!faults.is_empty())
        .then(|| format!("{}: {faults}; everything is denied until this is fixed", path.display()));
    One { policy, trouble }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_options_add_up_and_a_broken_file_denies_everything() {
        let root = crate::runtime::scratch::scratch("policy");
        let [ours, incus] = FILES.map(|file| root.join(file));
        std::fs::create_dir_all(root.join("etc")).unwrap();
        let args = ["mote-agent", "--deny", "exec", "--root", root.to_str().unwrap()];
        let options = crate::cli::options::parse(args.into_iter().map(Into::into)).unwrap();
        let found = |flavour| read(&options).under(flavour);
        let of = |flavour| found(flavour).0.features;
        let (lxd, under_incus) = (Some(Flavour::Lxd), Some(Flavour::Incus));
        assert_eq!(of(under_incus), Features::without("exec").unwrap());
        std::fs::write(&incus, "features:\n  exec: true\n  state: true\n  templates: false\n")
            .unwrap();
        let left = Features::only("state,network,first-boot").unwrap();
        assert_eq!((of(under_incus), of(None)), (left, left));
        assert_eq!(of(lxd), Features::without("exec").unwrap());
        std::fs::write(&ours, "features: {files: {read-only: true}, exec: {users: [1]}}").unwrap();
        assert_eq!(of(under_incus), Features::NONE);
        let (policy, troubles) = found(lxd);
        assert_eq!(policy.features, Features::only("files").unwrap());
        assert!(policy.read_only() && policy.to_string().ends_with("; limited: files"), "{policy}");
        assert!(troubles.is_empty());
        std::fs::write(&incus, "features: 1").unwrap();
        assert_eq!((of(lxd), of(None)), (policy.features, Features::NONE));
        std::fs::write(&ours, "features: {files: &x true}").unwrap();
        let (policy, troubles) = found(lxd);
        assert_eq!(policy.features, Features::NONE);
        assert!(troubles[0].contains("line 1: an anchor is not supported"), "{troubles:?}");
        std::fs::write(&ours, "feature: {files: true}").unwrap();
        let (policy, troubles) = found(lxd);
        let text = describe(&policy, &troubles);
        assert!(text.starts_with("denied: guestapi exec files"), "{text}");
        assert!(text.contains("etc/mote-agent.yml: line 1: unknown key \"feature\""), "{text}");
    }
}
