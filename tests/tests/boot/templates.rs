//! Templates and the guest's policy: denied ones are not written, and the policy's own files never
//! are.

use std::fs;
use std::os::unix::fs::symlink;

use crate::world::Boot;

/// A policy file that allows no commands.
const STRICT: &str = "features: {guestapi: true, templates: true}\n";
/// The content that a malicious host would want.
const EVIL: &str = "features: {exec: true}\n";

fn render(boot: &Boot, targets: &[&str]) {
    let listed: Vec<_> =
        targets.iter().map(|target| format!("  {target}: {{template: t}}\n")).collect();
    boot.share("files/metadata.yaml", &format!("templates:\n{}", listed.concat()));
    boot.share("files/t.out", EVIL);
}

#[test]
fn writes_no_template_if_the_guest_denies_them() {
    for (flavour, file, text, args) in [
        ("lxd", "etc/mote-agent.yml", "features: {guestapi: true}\n", &[][..]),
        ("lxd", "etc/none", "", &["--allow", "guestapi,exec"]),
        ("lxd", "etc/none", "", &["--deny", "templates"]),
        ("incus", "etc/incus-agent.yml", "features: {guestapi: true, templates: false}\n", &[]),
        // A policy that cannot be parsed may have denied them.
        ("lxd", "etc/mote-agent.yml", "features: {templates: *x}\n", &["--allow", "guestapi"]),
    ] {
        let boot = Boot::new(flavour);
        boot.put(file, text);
        render(&boot, &["/etc/cron.d/evil", "/etc/hostname"]);
        boot.put("proc/sys/kernel/hostname", "old\n");
        let _agent = boot.start(args);
        boot.logged("STARTED");
        assert!(!boot.root("etc/cron.d").exists(), "{file} {args:?}");
        assert_eq!(boot.text("proc/sys/kernel/hostname"), "old\n");
        assert_eq!(boot.text(file), text);
        let log = boot.log();
        assert_eq!(log.matches("the policy denies templates").count(), 1, "{log}");
    }
}

#[test]
fn no_template_changes_the_policys_files() {
    let boot = Boot::new("incus");
    boot.put("etc/mote-agent.yml", STRICT);
    boot.put("etc/x/y", "");
    // Directories, files and links that lead to the policy.
    symlink("etc", boot.root("config")).unwrap();
    symlink("../etc", boot.root("etc/up")).unwrap();
    symlink("x/../../etc/mote-agent.yml", boot.root("etc/file")).unwrap();
    symlink("file", boot.root("etc/again")).unwrap();
    symlink("incus-agent.yml", boot.root("etc/dangling")).unwrap();
    fs::hard_link(boot.root("etc/mote-agent.yml"), boot.root("hard")).unwrap();
    let bad = [
        "/etc/mote-agent.yml",
        "//etc/./mote-agent.yml",
        "/config/mote-agent.yml",
        "/etc/up/mote-agent.yml",
        "/etc/file",
        "/etc/again",
        "/hard",
        "/etc/incus-agent.yml",
        "/etc/incus-agent.yml/below",
        "/config/incus-agent.yml",
        "/etc/dangling",
    ];
    let good = ["/etc/good", "/etc/up/good2", "/etc/mote-agent.yml.d/good3"];
    render(&boot, &[&bad[..], &good[..]].concat());
    let _agent = boot.start(&[]);
    boot.logged("STARTED");
    let log = boot.log();
    for target in bad {
        let said = format!("template {target}: it would change the guest's policy");
        assert!(log.contains(&said), "{target}: {log}");
    }
    assert_eq!(boot.text("etc/mote-agent.yml"), STRICT);
    assert!(!boot.root("etc/incus-agent.yml").exists());
    for target in good {
        assert_eq!(boot.text(target.trim_start_matches('/')), EVIL, "{target}");
    }
}

#[test]
fn writes_no_seed_and_does_not_reboot_without_first_boot() {
    let boot = Boot::new("lxd");
    let seed = "var/lib/cloud/seed/nocloud-net/meta-data";
    fs::create_dir_all(boot.root("etc/cloud")).unwrap();
    render(&boot, &[&format!("/{seed}"), "/etc/other"]);
    let _agent = boot.start(&["--deny", "first-boot"]);
    boot.logged("STARTED");
    boot.logged("the policy denies cloud-init's seed");
    assert!(!boot.root(seed).exists() && !boot.log().contains("reboot"), "{}", boot.log());
    assert_eq!(boot.text("etc/other"), EVIL);
}

#[test]
fn changes_no_nic_without_network() {
    let nic = r#"{"device_name":"x","nic_name":"mote0","mac_address":"00:16:3e:00:00:77","mtu":0}"#;
    for (denied, said, unsaid) in [
        ("state", "no NIC has 00:16:3e:00:00:77", "the policy denies renaming"),
        ("network", "the policy denies renaming NICs", "no NIC has"),
    ] {
        let boot = Boot::new("lxd");
        boot.share("nics/x.json", nic);
        let _agent = boot.start(&["--deny", denied]);
        boot.logged("STARTED");
        let log = boot.log();
        assert!(log.contains(said) && !log.contains(unsaid), "{log}");
    }
}
