//! Files between `mote-host run` and an untrusted guest: what it may write on the host, and what is
//! copied.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use mote_tests::vm::{output, run};
use mote_tests::{Scratch, fifo};

use super::result;

/// Creates a program with mode 4755 in a directory with mode 1777, and files that cannot be copied.
fn tree(path: &Path) {
    fs::create_dir(path).expect("a directory");
    for name in ["a", "z"] {
        fs::write(path.join(name), name).expect("a file");
        fs::set_permissions(path.join(name), Permissions::from_mode(0o4755)).expect("a mode");
    }
    fs::set_permissions(path, Permissions::from_mode(0o1777)).expect("a mode");
    fifo(&path.join("p"));
}

#[test]
fn a_guest_cannot_write_to_a_share_that_it_may_only_read() {
    let scratch = Scratch::new();
    let (directory, link) = (scratch.0.join("a,b:c"), scratch.0.join("link"));
    tree(&directory);
    fs::write(directory.join("file"), "mine").expect("a file");
    symlink(&directory, &link).expect("a link");
    let script = "cat /one/file /two/file; \
        for place in /one /two; do mount -o remount,rw $place; echo remount $?; done; \
        for tag in lxd_share0 lxd_share1; do \
            mkdir /$tag; mount -t virtiofs $tag /$tag; echo mount $?; done; \
        for place in /one /two /lxd_share0 /lxd_share1; do \
            for act in 'touch new' 'rm file' 'chmod 777 file' 'mv file moved' 'truncate -s 0 file' \
                'mkdir d' 'ln file hard' 'chown 1 file' 'touch file'; do \
                (cd $place; $act) 2>/dev/null && echo \"$place: $act\"; done; \
            echo x 2>/dev/null >>$place/file && echo \"$place: written\"; done; true";
    let file = scratch.0.join("result");
    let shares = [(&directory, "one"), (&link, "two")];
    let shares = shares.map(|(path, name)| format!("{}:/{name}:ro", path.display()));
    let options =
        ["--share", &shares[0], "--share", &shares[1], "--result", file.to_str().expect("text")];
    let (out, err, code) = output(run(&scratch.0, &options, &["sh", "-c", script]));
    assert_eq!(result(&file)["vm"]["shares"]["/two"], "virtiofs", "{err}");
    // The guest may change its own mounts, so a read-only mount alone would not protect the host.
    assert_eq!(out, "minemineremount 0\nremount 0\nmount 0\nmount 0\n", "{err}");
    assert_eq!((err.as_str(), code), ("", Some(0)));
    assert_eq!(fs::read_to_string(directory.join("file")).expect("a file"), "mine");
    assert_eq!(fs::read_dir(&directory).expect("a directory").count(), 4);
}

#[test]
fn reports_a_command_that_never_ran_and_supports_a_custom_init() {
    let scratch = Scratch::new();
    let [file, junit] = ["result", "junit"].map(|name| scratch.0.join(name));
    let reports =
        ["--result", file.to_str().expect("text"), "--junit", junit.to_str().expect("text")];
    for (options, command, code, why) in [
        (&["--cwd", "/nowhere"][..], "true", 127, "the guest has no directory /nowhere"),
        (&[], "/nosuch", 127, "Command not found: /nosuch"),
        (&[], "/etc/passwd", 126, "Command not executable"),
    ] {
        let (_, err, ended) = output(run(&scratch.0, &[&reports, options].concat(), &[command]));
        assert_eq!(ended, Some(code), "{err}");
        assert!(err.starts_with(&format!("mote-host: {why}")), "{err}");
        let result = result(&file);
        assert_eq!((&result["outcome"], &result["code"]), (&"not-run".into(), &code.into()));
        assert!(result["cause"].as_str().is_some_and(|cause| cause.starts_with(why)), "{result}");
        let junit = fs::read_to_string(&junit).expect("a report");
        assert!(junit.contains(&format!("<failure message=\"{why}")), "{junit}");
    }
    let agent = mote_tests::agent().display().to_string();
    let append = "mote.agent=no rdinit=/bin/busybox -- sh -c \"echo mine >/ran; exec /init\"";
    let options = ["--mote", &agent, "--append", append];
    let (out, err, code) = output(run(&scratch.0, &options, &["cat", "/ran"]));
    assert_eq!((out.as_str(), err.as_str(), code), ("mine\n", "", Some(0)));
}
