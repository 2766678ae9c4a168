//! Where a policy contradicts itself: what it limits can be done in another way.

use alloc::string::String;

use super::whole::{Limit, Policy};
use super::{Capability, Features};
use crate::guest_path::Target;

/// Directories whose files root runs or obeys. An image may have more.
const ROOTS: &str = "/bin /boot /dev /etc /lib /lib64 /proc /root /run /sbin /sys /usr /var/lib /var/run /var/spool";

impl Policy {
    /// Adds the contradictions in words, each after a semicolon. `built` are the capabilities that there are.
    pub fn voids(&self, built: Features, out: &mut String) {
        let open = |one| self.allows(one) && built.allows(one);
        let exec = open(Capability::Exec);
        let any_command = exec && !self.has(Limit::Commands);
        let roots_files = open(Capability::Files) && !self.read_only() && self.files_as().is_none();
        let limits = self.limits(Capability::Files) || self.limits(Capability::PortForward);
        // Each of these is as good as any command as root.
        let root = any_command && self.takes(Limit::Users, 0);
        let any_file = roots_files && !self.has(Limit::Below);
        let (mounts, templates) = (open(Capability::Mounts), open(Capability::Templates));
        let is_limited = !exec || limits || self.limits(Capability::Exec);
        if is_limited && (root || any_file || mounts || templates) {
            out.push_str("; the host is still as good as root by");
            out.push_str(if root { " exec" } else { "" });
            out.push_str(if any_file { " files" } else { "" });
            out.push_str(if mounts { " mounts" } else { "" });
            out.push_str(if templates { " templates" } else { "" });
            out.push_str(" (a file in /etc/cron.d is a command): deny that too");
        } else if any_command && limits {
            out.push_str("; a command passes limits of files and ports: limit exec by commands");
        }
        for below in self.below().filter(|below| roots_files && !below.is_empty()) {
            let is_near = |place: &str| is_near(place, below);
            if ROOTS.split(' ').any(is_near) || self.items(Limit::Commands).any(is_near) {
                out.push_str("; what root runs can be below ");
                out.push_str(below);
            }
        }
    }
}

/// Whether one path leads to the other or below it.
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
    use std::format;
    use std::string::String;

    fn of(features: &str) -> Policy {
        let text = format!("features: {{{features}}}");
        Policy::from_yaml(text.as_bytes(), Whose::Mote, true, &mut |fault| panic!("{fault}"))
    }

    fn voids_of(policy: &Policy, built: Features) -> String {
        let mut all = String::new();
        policy.voids(built, &mut all);
        all
    }

    fn voids(features: &str) -> String {
        voids_of(&of(features), Features::ALL)
    }

    /// What still lets the host be root.
    fn roots(names: &str) -> String {
        let by = "; the host is still as good as root by";
        format!("{by} {names} (a file in /etc/cron.d is a command): deny that too")
    }

    const PASSES: &str = "; a command passes limits of files and ports: limit exec by commands";

    #[test]
    fn what_is_as_good_as_a_command_of_roots_is_named_where_commands_are_limited() {
        for (features, names) in [
            ("templates: true", "templates"),
            ("mounts: true, templates: true, files: true", "files mounts templates"),
            ("exec: {users: [1000]}, templates: true", "templates"),
            // As that user.
            ("exec: {users: [1000]}, files: true", ""),
            ("exec: {users: [1000]}, files: true, mounts: true", "mounts"),
            // Nobody's commands and root's files.
            ("exec: {users: []}, files: true", "files"),
            ("exec: {users: [1000], groups: []}, files: true", "files"),
            ("exec: {commands: [/a]}, files: true", "files"),
            ("exec: {users: [0, 5]}", "exec"),
            ("exec: {users: [0, 5], commands: [/a]}", ""),
            // Any user, root too.
            ("exec: {groups: [1000]}", "exec"),
            ("exec: true, files: {below: [/srv]}", "exec"),
            ("exec: true, files: {read-only: true}, templates: true", "exec templates"),
            ("exec: true, port-forward: {ports: [22]}", "exec"),
            ("exec: {commands: [/a]}, files: {read-only: true}, guestapi: true", ""),
            ("files: {below: [/srv]}, port-forward: {ports: [1]}, state: true", ""),
        ] {
            let expected = if names.is_empty() { String::new() } else { roots(names) };
            assert_eq!(voids(features), expected, "{features}");
        }
        let none = |policy: Policy| assert_eq!(voids_of(&policy, Features::ALL), "");
        // Nothing is limited.
        none(Features::ALL.into());
        none(Features::without("state,guestapi,network").unwrap().into());
        none(Features::NONE.into());
        let denied = Policy::from(Features::without("exec,files,mounts").unwrap());
        assert_eq!(voids_of(&denied, Features::ALL), roots("templates"));
        // A build without it.
        assert_eq!(voids_of(&denied, Features::without("templates").unwrap()), "");
    }

    #[test]
    fn commands_pass_the_limits_of_files_and_ports() {
        for (features, passes) in [
            ("exec: {users: [1000]}, files: {below: [/srv]}", true),
            ("exec: {users: [1000]}, files: {read-only: true}", true),
            ("exec: {users: [1000]}, port-forward: {ports: [22]}", true),
            ("exec: {users: [1000]}, files: true, port-forward: true", false),
            ("exec: {users: [1000], commands: [/a]}, files: {below: [/srv]}", false),
            ("files: {below: [/srv]}, port-forward: {ports: [22]}", false),
        ] {
            assert_eq!(voids(features), if passes { PASSES } else { "" }, "{features}");
        }
    }

    #[test]
    fn directories_from_which_root_runs_programs_are_no_limit() {
        let features = |below: &str, exec: &str, files: &str| {
            format!(
                "exec: {{{exec}commands: [/srv/tools/backup]}}, files: {{{files}below: [/home, {below}]}}"
            )
        };
        for below in [
            "/usr/bin",
            "/usr",
            "//etc/./cron.d/",
            "/var",
            "/var/spool/cron",
            "/srv",
            "/srv/tools",
            "/srv/tools/backup",
        ] {
            let line = format!("; what root runs can be below {below}");
            assert_eq!(voids(&features(below, "", "")), line);
            // Root runs no command of theirs, or they write no file of root's.
            assert_eq!(voids(&features(below, "", "read-only: true, ")), "", "{below}");
            assert_eq!(voids(&features(below, "users: [1000], ", "")), "", "{below}");
        }
        for fine in ["/var/log", "/home/etc", "/usrx", "/home", "/srv/toolsx", "/srv/tools/backups"]
        {
            assert_eq!(voids(&features(fine, "", "")), "", "{fine}");
        }
    }
}
