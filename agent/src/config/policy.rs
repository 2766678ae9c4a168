//! The guest's policy, from options and the guest's files (P§1.4): mote's and Incus' agent's. Each
//! can only deny more. Both files apply under every server, because the host chooses the flavour.
//! An unknown key denies everything; Incus' own agent ignores it.
//!
//! mote reads it before it uses any input of the host, and again on SIGHUP.

use std::cell::{Cell, Ref, RefCell};
use std::fmt::{Display, Write};
use std::path::Path;

use mote_core::hostapi::policy::{Capability, Features, Policy, Whose};

use crate::built;
use crate::options::Options;
use crate::runtime::{Signal, log, read_if_there};

/// The policy's files, relative to the root: mote's and Incus' agent's.
pub(crate) const FILES: [&str; 2] = ["etc/mote-agent.yml", "etc/incus-agent.yml"];
/// Maximum size of a file, in bytes. All features take about 200, 64 items per limit under 20,000.
const MAX_POLICY_FILE: u64 = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grade {
    Good,
    /// The host can do more than the policy states, or a part of the policy has no effect.
    Loophole,
    /// A file is invalid, so everything is denied.
    Broken,
}

pub(crate) struct Judged {
    pub(crate) policy: Policy,
    /// The policy's description, with its problems.
    pub(crate) text: String,
    pub(crate) grade: Grade,
}

/// Reads both files. An unreadable file denies everything, because its content might. Incus' agent
/// does not start with an unreadable file.
pub(crate) fn read(options: &Options) -> Judged {
    let mut troubles = String::new();
    let [ours, incus] = FILES;
    let mut policy = read_one(&options.root, ours, Whose::Mote, &mut troubles);
    let incus = read_one(&options.root, incus, Whose::Incus, &mut troubles);
    policy.features = policy.features.and(incus.features).and(options.features);
    let mut text = policy.to_string();
    let mut grade = if troubles.is_empty() { Grade::Good } else { Grade::Broken };
    text.push_str(&troubles);
    if built::LIMITS || built::FIRST_BOOT || built::READY_WHEN {
        let length = text.len();
        policy.close_loopholes(built::CAPABILITIES, &mut text);
        grade = if text.len() > length && grade == Grade::Good { Grade::Loophole } else { grade };
    }
    Judged { policy, text, grade }
}

pub(crate) struct InForce {
    policy: RefCell<Policy>,
    pub(crate) text: RefCell<String>,
    /// Whether a file is invalid.
    pub(crate) is_broken: Cell<bool>,
    /// Raised at each change. A long-lived connection stores the count, and ends if it has changed.
    pub(crate) changed: Signal,
}

impl InForce {
    /// Returns a policy that allows nothing.
    pub(crate) fn new() -> Self {
        let policy = RefCell::new(Features::NONE.into());
        let (text, is_broken) = (RefCell::default(), Cell::new(false));
        Self { policy, text, is_broken, changed: Signal::default() }
    }

    /// Applies the policy that was read, and logs it.
    pub(crate) fn take(&self, new: Judged) {
        let say = match new.grade {
            Grade::Good => log::info,
            Grade::Loophole => log::warn,
            Grade::Broken => log::error,
        };
        say(format_args!("policy: {}", new.text));
        self.text.replace(new.text);
        self.is_broken.set(new.grade == Grade::Broken);
        self.put(new.policy);
    }

    /// Denies everything except devlxd until a restart: this agent can no longer read its files.
    #[cold]
    pub(crate) fn close(&self) {
        let features = self.get().features.and(Features::of(&[(true, Capability::GuestApi)]));
        self.put(features.into());
    }

    fn put(&self, policy: Policy) {
        if self.policy.replace(policy) != *self.get() {
            self.changed.raise();
        }
    }

    /// Returns the policy; drop the borrow before an await.
    pub(crate) fn get(&self) -> Ref<'_, Policy> {
        self.policy.borrow()
    }

    /// Returns whether the capability is allowed, as a whole or within limits.
    pub(crate) fn allows(&self, capability: Capability) -> bool {
        self.get().allows(capability)
    }
}

/// Reads one file. Appends its problems to `troubles`.
fn read_one(root: &Path, file: &str, whose: Whose, troubles: &mut String) -> Policy {
    let path = root.join(file);
    let before = troubles.len();
    let mut tell = |fault: &dyn Display| {
        let _infallible = match troubles.len() == before {
            true => write!(troubles, "; {}: {fault}", path.display()),
            false => write!(troubles, "; {fault}"),
        };
    };
    let policy = match read_if_there(&path, MAX_POLICY_FILE) {
        Ok(Some(text)) => Policy::from_yaml(&text, whose, built::LIMITS, &mut tell),
        Ok(None) => Features::ALL.into(),
        Err(error) => {
            tell(&error);
            Features::NONE.into()
        }
    };
    if troubles.len() > before {
        troubles.push_str("; everything is denied until this is fixed");
    }
    policy
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::scratch;

    fn options(root: &Path, denied: &str) -> Options {
        let args = ["mote-agent", "--deny", denied, "--root", root.to_str().unwrap()];
        crate::options::parse(args.into_iter().map(Into::into)).unwrap()
    }

    #[test]
    fn files_and_options_add_up_and_a_broken_file_denies_everything() {
        let root = scratch("policy");
        let [ours, incus] = FILES.map(|file| root.join(file));
        std::fs::create_dir_all(root.join("etc")).unwrap();
        let found = || read(&options(&root, "exec"));
        let of = || found().policy.features;
        assert_eq!(of(), Features::without("exec").unwrap());
        std::fs::write(&incus, "features: {exec: true, state: true, templates: false}").unwrap();
        let left = Features::only("state,network,first-boot,resources,clock,power").unwrap();
        assert_eq!(of(), left);
        std::fs::write(&ours, "features: {files: {read-only: true}, exec: {users: [1]}}").unwrap();
        assert_eq!(of(), Features::NONE);
        std::fs::remove_file(&incus).unwrap();
        let judged = found();
        let policy = &judged.policy;
        assert_eq!(policy.features, Features::only("files").unwrap());
        assert!(policy.read_only() && policy.to_string().ends_with("; limited: files"), "{policy}");
        assert_eq!(judged.grade, Grade::Good);
        std::fs::write(&ours, "features: {files: true}").unwrap();
        let judged = found();
        assert_eq!(judged.grade, Grade::Loophole);
        assert!(judged.text.contains(" through files ("), "{}", judged.text);
        std::fs::write(&ours, "features: {files: {read-only: true}, exec: {users: [1]}}").unwrap();
        std::fs::write(&incus, "features: 1").unwrap();
        assert_eq!(of(), Features::NONE);
        std::fs::remove_file(&incus).unwrap();
        std::fs::write(&ours, "features: {files: &x true}").unwrap();
        let judged = found();
        let policy = &judged.policy;
        assert_eq!(policy.features, Features::NONE);
        assert_eq!(judged.grade, Grade::Broken);
        assert!(judged.text.contains("line 1: an anchor is not supported"), "{}", judged.text);
        std::fs::write(&ours, "feature: {files: true}").unwrap();
        let text = found().text;
        assert!(text.starts_with("denied: guestapi exec files"), "{text}");
        assert!(text.contains("etc/mote-agent.yml: line 1: unknown key \"feature\""), "{text}");
    }

    #[test]
    fn only_a_missing_file_allows_everything() {
        use std::os::unix::fs::symlink;
        let root = scratch("policy-absent");
        let etc = root.join("etc");
        let of = || read(&options(&root, "")).policy.features;
        assert_eq!(of(), Features::ALL);
        symlink("nowhere", &etc).unwrap();
        assert_eq!(of(), Features::NONE, "a directory that leads nowhere");
        std::fs::remove_file(&etc).unwrap();
        std::fs::write(&etc, "").unwrap();
        assert_eq!(of(), Features::NONE, "a file instead of the directory");
        std::fs::remove_file(&etc).unwrap();
        std::fs::create_dir(root.join("real")).unwrap();
        symlink("real", &etc).unwrap();
        assert_eq!(of(), Features::ALL);
        type Make = fn(&Path);
        for (what, make) in [
            ("a dangling link", (|path| symlink("nowhere", path).unwrap()) as Make),
            ("a link to itself", |path| symlink(path, path).unwrap()),
            ("a link to a device", |path| symlink("/dev/null", path).unwrap()),
            ("a link below a file", |path| symlink("/dev/null/x", path).unwrap()),
            ("a directory", |path| std::fs::create_dir(path).unwrap()),
            ("a FIFO", |path| {
                let status = std::process::Command::new("mkfifo").arg(path).status();
                assert!(status.unwrap().success());
            }),
            ("a socket", |path| drop(std::os::unix::net::UnixListener::bind(path).unwrap())),
            ("too long", |path| std::fs::write(path, "#".repeat(65537)).unwrap()),
        ] {
            for file in FILES {
                let path = root.join(file);
                make(&path);
                let judged = read(&options(&root, ""));
                let seen = (judged.policy.features, judged.grade);
                assert_eq!(seen, (Features::NONE, Grade::Broken), "{what}");
                assert!(judged.text.contains(file), "{}", judged.text);
                std::fs::remove_dir(&path).or_else(|_| std::fs::remove_file(&path)).unwrap();
            }
            assert_eq!(of(), Features::ALL, "{what}");
        }
    }
}
