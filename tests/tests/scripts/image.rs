//! The packages' and the initramfs' scripts, run on artificial images.

use crate::root;
use mote_tests::prelude::*;

#[test]
fn the_initramfs_agent_gets_the_options_that_limit_the_host() {
    let scratch = Scratch::new();
    let guest = scratch.0.join("guest");
    let options = || {
        let output = Command::new(root().join("image/hooks/options")).arg(&guest).output();
        let output = output.expect("image/hooks/options");
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    assert_eq!(options(), "");
    let unit = "[Service]\nExecStart=/usr/sbin/mote-agent\n";
    put(guest.join("usr/lib/systemd/system/mote-agent.service"), unit);
    put(guest.join("etc/default/mote-agent"), "# OPTIONS=\"--deny exec\"\nOPTIONS=\"\"\n");
    assert_eq!(options(), "");
    let drop_in = fs::read_to_string(root().join("image/services/mote-agent-hardened.conf"));
    let place = guest.join("etc/systemd/system/mote-agent.service.d");
    put(place.join("hardened.conf"), drop_in.expect("the drop-in"));
    assert_eq!(options(), "--deny=exec,files,mounts,port-forward,templates,first-boot,power\n");
    for (file, text, expected) in [
        ("etc/default/mote-agent", "OPTIONS=\"--deny exec\"", "--deny=exec\n"),
        (
            "etc/default/mote-agent",
            "OPTIONS='--initramfs --allow=state,metrics'",
            "--allow=state,metrics\n",
        ),
        ("etc/conf.d/mote-agent", "command_args=\"-d --deny=files\"", "--deny=files\n"),
        (
            "etc/sv/mote-agent/run",
            "exec mote-agent \\\n  --deny \\\n  'state' >>log",
            "--deny=state\n",
        ),
        ("etc/default/mote-agent", "OPTIONS=\"--deny $LIST\"", "--allow=\n"),
        ("etc/default/mote-agent", "OPTIONS=\"--allow '' --deny exec\"", "--allow=\n--deny=exec\n"),
    ] {
        fs::remove_dir_all(guest.join("etc")).expect("removed");
        put(guest.join(file), text);
        assert_eq!(options(), expected, "{text}");
    }
}

#[test]
fn the_initramfs_agent_has_its_options_and_a_private_log() {
    let scratch = Scratch::new();
    let options = "--allow=\n--deny=exec,files\n";
    let (agent, told) = (scratch.0.join("mote-agent"), scratch.0.join("told"));
    let text = "#!/bin/sh\nprintf '%s\\n' \"$@\" >TOLD.new; mv TOLD.new TOLD\n";
    program(&agent, text.replace("TOLD", &told.display().to_string()));
    put(scratch.0.join("options"), options);
    let log = scratch.0.join("log");
    let start = [
        ("/usr/sbin/mote-agent", &agent),
        ("/etc/mote-agent.options", &scratch.0.join("options")),
        ("/run/mote-agent-initramfs.log", &log),
        ("/sys/fs/cgroup", &scratch.0),
    ];
    let text = fs::read_to_string(root().join("image/hooks/start")).expect("the script");
    let text =
        start.iter().fold(text, |text, (from, to)| text.replace(from, &to.display().to_string()));
    assert!(Command::new("sh").args(["-c", &text]).status().expect("sh").success());
    let (words, _) = wait("its start", Duration::from_secs(20), || fs::read_to_string(&told).ok());
    assert_eq!(words, format!("--initramfs\n{options}"));
    assert_eq!(fs::metadata(&log).expect("its log").permissions().mode() & 0o777, 0o600);
}

/// Returns an installer with files, and an image whose links lead into its own `outside`.
fn installer_and_image(scratch: &Scratch, outside: &Path) -> (PathBuf, PathBuf) {
    let (folder, image) = (scratch.0.join("folder"), scratch.0.join("image"));
    for file in ["init.d/x", "usr/lib/x"] {
        put(outside.join(file), "");
    }
    let program = fs::read(root().join("image/packages/install")).expect("the installer");
    put(folder.join("install"), program);
    for file in "mote-agent when-idle share/man/man8/mote-agent.8.gz copyright third-party.gz mote-agent.yml hardened.conf \
                 services/sysvinit services/respawn"
        .split_whitespace()
    {
        put(folder.join(file), "new");
    }
    put(image.join("real/rc/inittab"), "");
    put(image.join("real/rc/rcS.d/x"), "");
    put(image.join("real/lib/lsb/init-functions"), "");
    put(image.join("real/share/x"), "");
    let outside_text = outside.display().to_string();
    for (at, to) in [
        ("etc", "/real/rc"),
        ("lib", "real/../real/lib"),
        ("usr", "/../../real"),
        ("real/rc/init.d", &*format!("{outside_text}/init.d")),
        ("real/sbin", &*format!("{outside_text}/usr")),
        ("real/rc/rc0.d", "loop"),
        ("real/rc/loop", "rc0.d"),
    ] {
        symlink(to, image.join(at)).expect("a link");
    }
    (folder, image)
}

#[test]
fn the_installer_resolves_absolute_links_within_the_root() {
    let scratch = Scratch::new();
    let outside = scratch.0.join("outside");
    let (folder, image) = installer_and_image(&scratch, &outside);
    let install = |more: &[&str]| {
        let mut command = Command::new("sh");
        command.arg(folder.join("install")).arg("--root").arg(&image).args(more);
        command.output().expect("sh")
    };
    let failed = install(&[]);
    let said = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(!failed.status.success() && said.contains("too many links"), "{said}");
    fs::remove_file(image.join("real/rc/loop")).expect("removed");
    fs::remove_file(image.join("real/rc/rc0.d")).expect("removed");
    let done = install(&[]);
    assert!(done.status.success(), "{done:?}");
    assert!(String::from_utf8_lossy(&done.stdout).contains("enabled for sysvinit"), "{done:?}");
    let inside = |path: &str| image.join(outside.strip_prefix("/").expect("a path")).join(path);
    for made in [
        inside("init.d/mote-agent"),
        inside("usr/mote-agent"),
        image.join("real/rc/rcS.d/S01mote-agent"),
    ] {
        assert!(made.symlink_metadata().is_ok(), "{}", made.display());
    }
    let untouched = || {
        let find = Command::new("find").arg(&outside).args(["-type", "f"]).output().expect("find");
        assert_eq!(String::from_utf8_lossy(&find.stdout).lines().count(), 2, "{find:?}");
    };
    untouched();
    assert!(install(&["--uninstall"]).status.success());
    untouched();
    assert!(!inside("init.d/mote-agent").exists() && !image.join("real/lib/mote-agent").exists());
}
