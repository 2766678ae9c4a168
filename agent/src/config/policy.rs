//! The guest's own policy, from options and files (P§1.4): mote's file for every server, and Incus' file
//! under Incus. Each can only deny more. An unknown key in either file denies everything; Incus' own agent
//! ignores it.
//!
//! It is read before anything of the host's is touched. The flavour, by which Incus' file counts or not, is
//! known later, by what the host shows: until then, and if nothing tells it, that file restricts too. SIGHUP has it
//! read again.

use std::cell::{Cell, Ref, RefCell};
use std::fmt::{Display, Write};
use std::io::ErrorKind;
use std::path::Path;

use mote_core::first_boot::credentials::POLICY;
use mote_core::flavour::Flavour;
use mote_core::hostapi::policy::{Capability, Features, Policy, Whose};

use crate::built;
use crate::config::credentials;
use crate::options::Options;
use crate::runtime::log;
use crate::runtime::small_files::read_bounded;
use crate::runtime::wake::Signal;

/// The policy's files, relative to the root: that for every server, and that of Incus' agent.
pub(crate) const FILES: [&str; 2] = ["etc/mote-agent.yml", "etc/incus-agent.yml"];
/// Longest file, bytes; all features take about 200, and 64 items for each limit hardly more than 20,000.
const MAX_POLICY_FILE: u64 = 64 * 1024;

/// What options and files say.
pub(crate) struct Found {
    options: Features,
    ours: One,
    incus: One,
}

/// What one file says; nothing is allowed if there is something wrong with it.
struct One {
    policy: Policy,
    /// Each after a semicolon; empty if there is nothing wrong.
    trouble: String,
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
    /// What is to be seen before the agent says Ready by itself.
    pub(crate) fn ready_when(&self) -> impl Iterator<Item = &str> {
        self.ours.policy.ready_when()
    }

    /// What is allowed under this flavour, or while it is not known.
    pub(crate) fn features(&self, flavour: Option<Flavour>) -> Features {
        let all = self.options.and(self.ours.policy.features);
        if is_incus_file_used(flavour) { all.and(self.incus.policy.features) } else { all }
    }

    /// The policy under this flavour.
    #[inline(never)] // its size
    pub(crate) fn under(self, flavour: Option<Flavour>) -> Judged {
        let features = self.features(flavour);
        let mut policy = self.ours.policy;
        policy.features = features;
        let mut text = policy.to_string();
        let length = text.len();
        text.push_str(&self.ours.trouble);
        if is_incus_file_used(flavour) {
            text.push_str(&self.incus.trouble);
        }
        let mut grade = if text.len() > length { Grade::Broken } else { Grade::Good };
        if built::LIMITS || built::FIRST_BOOT {
            let length = text.len();
            policy.voids(built::CAPABILITIES, &mut text);
            grade = if text.len() > length { Grade::Void } else { grade };
        }
        Judged { policy, text, grade }
    }
}

/// How good a policy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grade {
    /// It says what it means.
    Good,
    /// Some limit of it is void.
    Void,
    /// A file is not understood, so that nothing is allowed.
    Broken,
}

/// A policy, and what there is to say of it.
pub(crate) struct Judged {
    pub(crate) policy: Policy,
    /// In words, with what is wrong.
    pub(crate) text: String,
    pub(crate) grade: Grade,
}

/// The policy in force.
pub(crate) struct InForce {
    flavour: Option<Flavour>,
    policy: RefCell<Policy>,
    /// The policy in words, for the status file.
    pub(crate) text: RefCell<String>,
    /// Whether a file of it is not understood.
    pub(crate) is_broken: Cell<bool>,
    /// Raised when it changed. What was allowed once keeps the count, and lasts no longer.
    pub(crate) changed: Signal,
}

impl InForce {
    /// The policy under this flavour; nothing is allowed yet.
    pub(crate) fn new(flavour: Option<Flavour>) -> Self {
        let policy = RefCell::new(Features::NONE.into());
        let (text, is_broken) = (RefCell::default(), Cell::new(false));
        Self { flavour, policy, text, is_broken, changed: Signal::default() }
    }

    /// Puts in force what was read, and logs it.
    #[inline(never)] // its size
    pub(crate) fn take(&self, found: Found) {
        let new = found.under(self.flavour);
        let say = match new.grade {
            Grade::Good => log::info,
            Grade::Void => log::warn,
            Grade::Broken => log::error,
        };
        say(format_args!("policy: {}", new.text));
        self.text.replace(new.text);
        self.is_broken.set(new.grade == Grade::Broken);
        self.put(new.policy);
    }

    /// Leaves the host what it needs until this agent, which cannot read its files any longer, is started again.
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

    /// The policy; not to be held over an await.
    #[inline(never)] // its size
    pub(crate) fn get(&self) -> Ref<'_, Policy> {
        self.policy.borrow()
    }

    /// Whether the capability is allowed, as a whole or within limits.
    #[inline(never)] // its size
    pub(crate) fn allows(&self, capability: Capability) -> bool {
        self.get().allows(capability)
    }
}

fn is_incus_file_used(flavour: Option<Flavour>) -> bool {
    matches!(flavour, None | Some(Flavour::Incus))
}

#[inline(never)] // its size
fn read_one(root: &Path, file: &str, whose: Whose) -> One {
    let path = root.join(file);
    let (mut text, mut credential) = (read_bounded(&path, MAX_POLICY_FILE), "");
    if built::CREDENTIALS
        && whose == Whose::Mote
        && text.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound)
    {
        // It can only deny more than an image without a policy.
        text = credentials::read(root, POLICY);
        if text.is_ok() {
            log::info(format_args!("policy: that of the credential {POLICY}"));
        }
        credential = "credential in place of ";
    }
    let mut trouble = String::new();
    let mut tell = |fault: &dyn Display| {
        let _infallible = match trouble.as_str() {
            "" => write!(trouble, "; {credential}{}: {fault}", path.display()),
            _ => write!(trouble, "; {fault}"),
        };
    };
    let policy = match text {
        Ok(text) => Policy::from_yaml(&text, whose, built::LIMITS, &mut tell),
        Err(error) if error.kind() == ErrorKind::NotFound => Features::ALL.into(),
        Err(error) => {
            tell(&error);
            Features::NONE.into()
        }
    };
    if !trouble.is_empty() {
        trouble.push_str("; everything is denied until this is fixed");
    }
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
        let options = crate::options::parse(args.into_iter().map(Into::into)).unwrap();
        let found = |flavour| read(&options).under(flavour);
        let of = |flavour| found(flavour).policy.features;
        let (lxd, under_incus) = (Some(Flavour::Lxd), Some(Flavour::Incus));
        assert_eq!(of(under_incus), Features::without("exec").unwrap());
        std::fs::write(&incus, "features:\n  exec: true\n  state: true\n  templates: false\n")
            .unwrap();
        let left = Features::only("state,network,first-boot,resources,clock").unwrap();
        assert_eq!((of(under_incus), of(None)), (left, left));
        assert_eq!(of(lxd), Features::without("exec").unwrap());
        std::fs::write(&ours, "features: {files: {read-only: true}, exec: {users: [1]}}").unwrap();
        assert_eq!(of(under_incus), Features::NONE);
        let judged = found(lxd);
        let policy = &judged.policy;
        assert_eq!(policy.features, Features::only("files").unwrap());
        assert!(policy.read_only() && policy.to_string().ends_with("; limited: files"), "{policy}");
        assert_eq!(judged.grade, Grade::Good);
        std::fs::write(&ours, "features: {files: true}").unwrap();
        let judged = found(lxd);
        assert!(
            judged.grade == Grade::Void && judged.text.contains(" by files ("),
            "{}",
            judged.text
        );
        std::fs::write(&ours, "features: {files: {read-only: true}, exec: {users: [1]}}").unwrap();
        std::fs::write(&incus, "features: 1").unwrap();
        assert_eq!((of(lxd), of(None)), (Features::only("files").unwrap(), Features::NONE));
        std::fs::write(&ours, "features: {files: &x true}").unwrap();
        let judged = found(lxd);
        let policy = &judged.policy;
        assert_eq!(policy.features, Features::NONE);
        assert_eq!(judged.grade, Grade::Broken);
        assert!(judged.text.contains("line 1: an anchor is not supported"), "{}", judged.text);
        std::fs::write(&ours, "feature: {files: true}").unwrap();
        let text = found(lxd).text;
        assert!(text.starts_with("denied: guestapi exec files"), "{text}");
        assert!(text.contains("etc/mote-agent.yml: line 1: unknown key \"feature\""), "{text}");
    }

    #[test]
    fn a_credential_is_the_policy_of_an_image_without_one_and_of_no_other() {
        let root = crate::runtime::scratch::scratch("policy-credential");
        let table = root.join("sys/firmware/dmi/tables/DMI");
        for directory in ["etc", "sys/firmware/dmi/tables"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        let say = |text: &str| {
            let string = ["\x0b\x05\0\0\x01io.systemd.credential:mote-agent.yml=", text, "\0\0"];
            std::fs::write(&table, string.concat()).unwrap();
        };
        let args = ["mote-agent", "--deny", "files", "--root", root.to_str().unwrap()];
        let options = crate::options::parse(args.into_iter().map(Into::into)).unwrap();
        let found = || read(&options).under(Some(Flavour::Lxd));
        say("features: {exec: true, files: true}");
        assert_eq!(found().policy.features, Features::only("exec").unwrap());
        // What is not understood denies everything, as in a file.
        say("feature: {exec: true}");
        let broken = found();
        assert_eq!((broken.policy.features, broken.grade), (Features::NONE, Grade::Broken));
        assert!(broken.text.contains("credential in place of "), "{}", broken.text);
        // The image's own is not widened, nor narrowed.
        std::fs::write(root.join("etc/mote-agent.yml"), "features: {state: true}").unwrap();
        assert_eq!(found().policy.features, Features::only("state").unwrap());
        say("features: {exec: true}");
        assert_eq!(found().policy.features, Features::only("state").unwrap());
        // systemd runs: this is left to it.
        std::fs::remove_file(root.join("etc/mote-agent.yml")).unwrap();
        std::fs::create_dir_all(root.join("run/systemd/system")).unwrap();
        assert_eq!(found().policy.features, Features::without("files").unwrap());
    }
}
