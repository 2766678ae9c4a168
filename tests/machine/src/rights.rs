//! Privileges that not every user has. A test without them is skipped; scripts/test lists it.

use std::fs::File;
use std::io::Write;
use std::panic::Location;
use std::process::Command;

/// The environment variable that names the list of skipped tests.
const SKIPPED: &str = "MOTE_SKIPPED";

#[track_caller]
pub fn skipped(needs: &str) {
    let line = format!("{}: needs {needs}\n", Location::caller());
    print!("skipped: {line}");
    if let Some(path) = std::env::var_os(SKIPPED) {
        let file = File::options().append(true).create(true).open(path);
        // A single write, because other tests append lines at the same time.
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .expect("the list of skipped tests");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Private {
    Mounts,
    Network,
    /// A PID namespace with its own `/proc`.
    Processes,
}

impl Private {
    fn options(self) -> &'static str {
        match self {
            Self::Mounts => "--mount",
            Self::Network => "--net",
            Self::Processes => "--fork --kill-child --pid --mount-proc",
        }
    }

    fn try_out(self) -> &'static str {
        match self {
            Self::Mounts => "mount -t tmpfs none /tmp",
            Self::Network => "ip link add type ifb",
            Self::Processes => "true",
        }
    }
}

/// Returns the words to put before a command that is to run in such a namespace on this machine.
pub fn private(what: Private) -> Result<Vec<&'static str>, String> {
    let mut first = None;
    for by in ["unshare", "unshare --map-root-user", "sudo -n unshare"] {
        let way: Vec<_> = by.split(' ').chain(what.options().split(' ')).collect();
        let tried = Command::new(way[0]).args(&way[1..]).args(what.try_out().split(' ')).output();
        let why = match tried {
            Ok(output) if output.status.success() => return Ok(way),
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; "),
            Err(error) => error.to_string(),
        };
        first.get_or_insert(why);
    }
    Err(format!("unshare {}: {}", what.options(), first.unwrap_or_default()))
}

/// Runs the named test again in such a namespace, where this function returns true. Skips the test
/// if this user cannot create the namespace.
#[track_caller]
pub fn in_private(what: Private, test: &str) -> bool {
    const INSIDE: &str = "MOTE_PRIVATE";
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let way = match private(what) {
        Ok(way) => way,
        Err(why) => {
            skipped(&why);
            return false;
        }
    };
    // sudo clears the environment.
    let tools = std::env::vars().filter(|(name, _)| name.starts_with("MOTE_"));
    let output = Command::new(way[0])
        .args(&way[1..])
        .args(["env", &format!("{INSIDE}=1")])
        .args(tools.map(|(name, value)| format!("{name}={value}")))
        .arg(std::env::current_exe().expect("this test"))
        .args(["--exact", test, "--nocapture"])
        .output()
        .expect("unshare");
    let said = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{error}");
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn makes_namespaces_or_reports_what_is_missing() {
        for what in [Private::Mounts, Private::Network, Private::Processes] {
            match private(what) {
                Ok(way) => {
                    let code = Command::new(way[0]).args(&way[1..]).arg("true").status();
                    assert!(code.unwrap().success(), "{way:?}");
                }
                Err(why) => assert!(why.starts_with("unshare --") && !why.ends_with(": "), "{why}"),
            }
        }
    }

    /// Many chroots have a root that is not a mount point, so unshare(1) cannot change how mounts
    /// propagate.
    #[test]
    fn skips_a_test_if_the_root_is_not_a_mount_point() {
        const TEST: &str = "rights::tests::skips_a_test_if_the_root_is_not_a_mount_point";
        const AGAIN: &str = "MOTE_NO_MOUNT_POINT";
        if std::env::var_os(AGAIN).is_some() {
            assert!(!in_private(Private::Mounts, TEST));
            return;
        }
        let true = in_private(Private::Mounts, TEST) else { return };
        // Binds the whole machine below a directory of a file system.
        let script = r#"set -e; mount -t tmpfs none /mnt; mkdir /mnt/top; cd /mnt/top
            for at in /*; do
                if [ -h "$at" ]; then cp -P "$at" .
                elif [ -d "$at" ] && [ "$at" != /mnt ]; then mkdir ".$at"; mount --rbind "$at" ".$at"; fi
            done
            exec chroot . /usr/bin/env --unset=MOTE_PRIVATE "$@""#;
        let list = std::env::temp_dir().join(format!("mote-skipped-{}", std::process::id()));
        let output = Command::new("sh")
            .args(["-c", script, "sh"])
            .args([format!("{AGAIN}=1"), format!("{SKIPPED}={}", list.display())])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", TEST, "--nocapture"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
        let listed = std::fs::read_to_string(&list).unwrap();
        std::fs::remove_file(list).unwrap();
        assert!(
            listed.contains("rights.rs:") && listed.contains(": needs unshare --mount: "),
            "{listed}"
        );
        assert!(listed.contains("cannot change root filesystem propagation"), "{listed}");
        assert_eq!(listed.lines().count(), 1, "{listed}");
    }
}
