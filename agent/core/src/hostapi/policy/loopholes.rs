//! Detects loopholes: policies whose limits the host can bypass. docs/results/loopholes.md shows
//! [`COMBINATIONS`]; tests check `--check` and the code below against them.

use alloc::string::String;

use super::whole::{Limit, Policy};
use super::{Capability, Features};
use crate::guest_path::Target;

/// Directories whose files root executes or obeys. An image may have more.
const ROOTS: &str = "/bin /boot /dev /etc /lib /lib64 /proc /root /run /sbin /sys /usr /var/lib /var/run /var/spool";

/// Warning about other features through which the host becomes root; their names follow.
pub const AS_ROOT: &str = "the host can still become root through";
/// Warning that unlimited commands bypass the limits of files and ports.
pub const PASSES: &str = "commands bypass limits on files and ports: set commands in exec";
/// Warning that the host can write programs that root runs; the directory follows.
pub const WRITES: &str = "root may run programs below";
/// Warning that `ready-when` is ignored: root would run a command that the host may have written.
pub const READY_WHEN: &str = "ready-when is off: it has a command, and exec is denied or limited";

#[derive(Clone, Copy, Debug)]
pub struct Combination {
    /// The map in the policy file, without its braces; all other capabilities are denied.
    pub file: &'static str,
    /// What the host can still do.
    pub host: &'static str,
    /// Start of the agent's warning; empty if there is none.
    pub warning: &'static str,
}

/// Defines the combinations: policy, what the host can still do, start of the warning.
macro_rules! combinations {
    ($($file:literal: $host:literal $($warning:literal)?;)*) => {
        /// Combinations of permissions, and their effect.
        pub const COMBINATIONS: &[Combination] =
            &[$(Combination { file: $file, host: $host, warning: concat!($($warning)?) }),*];
    };
}

combinations! {
    "features: {exec: {users: [1000]}}": "run any program as user 1000";
    "features: {exec: {users: [1000]}, files: true}": "run any program, and read and write files, as user 1000";
    "features: {exec: {users: [1000]}, files: {below: [/srv]}}": "run any program, and read and write files, as user 1000, also outside `/srv`"
        "commands bypass limits on files and ports: set commands in exec";
    "features: {exec: {users: [1000]}, files: {read-only: true}}":
        "run any program as user 1000, and read any file as root: keys, `/etc/shadow`"
        "commands bypass limits on files and ports: set commands in exec";
    "features: {exec: {users: [1000], commands: [/usr/bin/uptime]}, files: {below: [/srv]}}":
        "run that program as user 1000, and write below `/srv` as user 1000";
    "features: {exec: {commands: [/usr/bin/uptime]}, files: {below: [/srv]}}":
        "run that program as any user, and write below `/srv` as root";
    "features: {exec: {commands: [/srv/backup]}, files: {below: [/srv]}}": "be root: it can replace that program"
        "root may run programs below /srv";
    "features: {files: {below: [/srv], read-only: true}}": "read files below `/srv`";
    "features: {files: {below: [/srv]}}": "read and write files below `/srv` as root";
    "features: {files: {below: [/etc]}}": "be root: a file in `/etc/cron.d` is a command"
        "root may run programs below /etc";
    "features: {files: {read-only: true}}": "read any file as root";
    "features: {files: true}": "be root"
        "the host can still become root through files (a file in /etc/cron.d is a command): deny that too";
    "features: {exec: {groups: [1000]}}": "be root: without `users` any user is allowed"
        "the host can still become root through exec (";
    "features: {exec: true, files: {below: [/srv]}}": "be root" "the host can still become root through exec (";
    "features: {exec: {users: [1000]}, templates: true}": "be root"
        "the host can still become root through templates (";
    "features: {exec: {users: [1000]}, mounts: true}": "be root: it can mount over `/etc/cron.d`"
        "the host can still become root through mounts (";
    "features: {files: {below: [/srv]}, port-forward: {ports: [22]}}":
        "log in as a user whose password or key it knows, and write below `/srv` as root";
    "features: {exec: {users: [1000]}, port-forward: {ports: [22]}}": "reach other ports with a program of user 1000"
        "commands bypass limits on files and ports: set commands in exec";
    "features: {guestapi: true, state: true}": "be root if cloud-init is installed, which runs what the host sends";
    "features: {exec: true}, ready-when: [command /srv/check]":
        "be root, as with `exec` alone; the command decides Ready";
    "features: {files: {below: [/srv]}}, ready-when: [command /srv/check]":
        "read and write files below `/srv`; no command runs, and only an application reports Ready"
        "ready-when is off: it has a command, and exec is denied or limited";
    "features: {power: true}": "power off, reboot and halt the guest";
    "features: {exec: {users: [0], commands: [/usr/sbin/mote-agent]}}":
        "freeze and thaw file systems, and read what the agent shows to every user of the guest";
}

impl Policy {
    /// Appends a description of each loophole after a semicolon, and closes the one that can be
    /// closed: the list `ready-when`. `built` are the capabilities of this build.
    pub fn close_loopholes(&mut self, built: Features, out: &mut String) {
        let open = |one| self.allows(one) && built.allows(one);
        let exec = open(Capability::Exec);
        let any_command = exec && !self.has(Limit::Commands);
        let roots_files = open(Capability::Files) && !self.read_only() && self.files_as().is_none();
        let limits = self.limits(Capability::Files) || self.limits(Capability::PortForward);
        // Each of these amounts to running any command as root.
        let root = any_command && self.takes(Limit::Users, 0);
        let any_file = roots_files && !self.has(Limit::Below);
        let (mounts, templates) = (open(Capability::Mounts), open(Capability::Templates));
        let is_exec_limited = !exec || self.limits(Capability::Exec);
        if (is_exec_limited || limits) && (root || any_file || mounts || templates) {
            out.push_str("; ");
            out.push_str(AS_ROOT);
            out.push_str(if root { " exec" } else { "" });
            out.push_str(if any_file { " files" } else { "" });
            out.push_str(if mounts { " mounts" } else { "" });
            out.push_str(if templates { " templates" } else { "" });
            out.push_str(" (a file in /etc/cron.d is a command): deny that too");
        } else if any_command && limits {
            out.push_str("; ");
            out.push_str(PASSES);
        }
        for below in self.below().filter(|below| roots_files && !below.is_empty()) {
            let is_near = |place: &str| is_near(place, below);
            if ROOTS.split(' ').any(is_near) || self.items(Limit::Commands).any(is_near) {
                out.push_str("; ");
                out.push_str(WRITES);
                out.push(' ');
                out.push_str(below);
            }
        }
        if is_exec_limited && self.ready_when().any(|item| item.starts_with("command")) {
            out.push_str("; ");
            out.push_str(READY_WHEN);
            self.forget(Limit::ReadyWhen);
        }
    }
}

/// Returns whether one path equals or contains the other.
#[inline(never)] // its size
fn is_near(one: &str, other: &str) -> bool {
    match (Target::parse(one), Target::parse(other)) {
        (Some(one), Some(other)) => one.parts().zip(other.parts()).all(|(one, other)| one == other),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostapi::policy::Whose;

    fn of(features: &str) -> Policy {
        file(&format!("features: {{{features}}}"))
    }

    fn file(text: &str) -> Policy {
        Policy::from_yaml(text.as_bytes(), Whose::Mote, true, &mut |fault| panic!("{fault}"))
    }

    fn loopholes_of(mut policy: Policy, built: Features) -> String {
        let mut all = String::new();
        policy.close_loopholes(built, &mut all);
        all
    }

    fn loopholes(features: &str) -> String {
        loopholes_of(of(features), Features::ALL)
    }

    #[test]
    fn each_combination_has_its_warning_and_no_other() {
        for row in COMBINATIONS {
            let all = loopholes_of(file(&format!("{{{}}}", row.file)), Features::ALL);
            let first = all.strip_prefix("; ").unwrap_or_default();
            assert!(first.starts_with(row.warning), "{row:?}: {all}");
            assert_eq!(all.matches("; ").count(), usize::from(!row.warning.is_empty()), "{all}");
        }
    }

    #[test]
    fn ignores_ready_when_if_its_command_bypasses_exec() {
        for (features, built, is_kept) in [
            ("", Features::ALL, true),
            ("features: {exec: true, files: {below: [/x]}}", Features::ALL, true),
            ("features: {exec: {users: [0]}}", Features::ALL, false),
            ("features: {exec: {commands: [/x/check]}}", Features::ALL, false),
            ("features: {state: true}", Features::ALL, false),
            ("features: {files: {below: [/x]}}", Features::ALL, false),
            // This build lacks the capability.
            ("", Features::without("exec").unwrap(), false),
        ] {
            for (list, has_command) in [("port 80, command /x/check", true), ("port 80", false)] {
                let mut policy = file(&format!("ready-when: [{list}]\n{features}\n"));
                let mut said = String::new();
                policy.close_loopholes(built, &mut said);
                let is_kept = is_kept || !has_command;
                assert_eq!(policy.ready_when().count() > 0, is_kept, "{features} {list}");
                assert_eq!(said.contains(READY_WHEN), !is_kept, "{said}");
                // The rest is unchanged.
                assert_eq!(policy.below().count(), file(features).below().count());
            }
        }
    }

    /// Returns the warning about features that make the host root.
    fn roots(names: &str) -> String {
        format!("; {AS_ROOT} {names} (a file in /etc/cron.d is a command): deny that too")
    }

    /// [`COMBINATIONS`] has more.
    #[test]
    fn warns_about_features_that_equal_root_if_commands_are_limited() {
        for (features, names) in [
            ("templates: true", "templates"),
            ("mounts: true, templates: true, files: true", "files mounts templates"),
            ("exec: {users: [1000]}, files: true, mounts: true", "mounts"),
            // The host has no commands, but files with root's rights.
            ("exec: {users: []}, files: true", "files"),
            ("exec: {users: [1000], groups: []}, files: true", "files"),
            ("exec: {commands: [/a]}, files: true", "files"),
            ("exec: {users: [0, 5]}", "exec"),
            ("exec: {users: [0, 5], commands: [/a]}", ""),
            ("exec: true, files: {read-only: true}, templates: true", "exec templates"),
            ("exec: true, port-forward: {ports: [22]}", "exec"),
            ("exec: {commands: [/a]}, files: {read-only: true}, guestapi: true", ""),
            ("files: {below: [/srv]}, port-forward: {ports: [1]}, state: true", ""),
            ("exec: {users: [1000]}, files: true, port-forward: true", ""),
        ] {
            let expected = if names.is_empty() { String::new() } else { roots(names) };
            assert_eq!(loopholes(features), expected, "{features}");
        }
        let none = |policy: Policy| assert_eq!(loopholes_of(policy, Features::ALL), "");
        // Nothing is limited.
        none(Features::ALL.into());
        none(Features::without("state,guestapi,network").unwrap().into());
        none(Features::NONE.into());
        let denied = Policy::from(Features::without("exec,files,mounts").unwrap());
        assert_eq!(loopholes_of(denied.clone(), Features::ALL), roots("templates"));
        // This build lacks the capability.
        assert_eq!(loopholes_of(denied, Features::without("templates").unwrap()), "");
    }

    #[test]
    fn directories_with_programs_of_root_do_not_limit() {
        let features = |below: &str, exec: &str, files: &str| {
            format!(
                "exec: {{{exec}commands: [/srv/tools/backup]}}, files: {{{files}below: [/home, {below}]}}"
            )
        };
        let all = "/usr/bin; /usr; //etc/./cron.d/; /var; /var/spool/cron; /srv; /srv/tools; \
             /srv/tools/backup";
        for below in all.split("; ") {
            let line = format!("; {WRITES} {below}");
            assert_eq!(loopholes(&features(below, "", "")), line);
            // Root runs none of their commands, or they cannot write root's files.
            assert_eq!(loopholes(&features(below, "", "read-only: true, ")), "", "{below}");
            assert_eq!(loopholes(&features(below, "users: [1000], ", "")), "", "{below}");
        }
        for fine in ["/var/log", "/home/etc", "/usrx", "/home", "/srv/toolsx", "/srv/tools/backups"]
        {
            assert_eq!(loopholes(&features(fine, "", "")), "", "{fine}");
        }
    }
}
