//! Directories that the guest's policy limits the host to.

use mote_tests::{MOTE_BOOT, NAME, Spec, World};

/// Runs in an initramfs, where `pivot_root` cannot replace the root directory. Each session has its
/// own mount namespace, which ends with it.
#[test]
fn shows_the_host_only_files_below_a_directory() {
    let spec = Spec { words: "mote.agent=no".into(), ..Spec::default() };
    let mut world = World::of("lxd", &spec, &[]);
    let mut guest = world.vm.guest();
    guest.ok(
        "mkdir -p /etc /srv/shown/sub; echo text >/srv/shown/a; echo secret >/srv/secret; ln -s ../secret \
         /srv/shown/link; echo 'features: {guestapi: true, files: {below: [/srv/shown]}}' \
         >/etc/mote-agent.yml; mote-agent 2>/run/agent.log & echo $! >/run/agent.pid",
    );
    let _took = world.host.connected(MOTE_BOOT);
    let copy = world.scratch.0.join("copy");
    let copy = copy.to_str().unwrap();
    world.host.ok(&["file", "pull", &format!("{NAME}/srv/shown/a"), copy]);
    assert_eq!(std::fs::read_to_string(copy).unwrap(), "text\n");
    world.host.ok(&["file", "push", copy, &format!("{NAME}/srv/shown/sub/b")]);
    assert_eq!(guest.ok("cat /srv/shown/sub/b"), "text\n");
    for path in ["/srv/secret", "/srv/shown/link", "/srv/shown/../secret", "/etc/mote-agent.yml"] {
        let why = world.host.try_run(&["file", "pull", &format!("{NAME}{path}"), copy]);
        assert!(why.unwrap_err().contains("the guest's policy does not show it"), "{path}");
    }
    assert_eq!(guest.sh("grep -c /run/mote /proc/mounts").1, "0\n");
    let status = guest.ok("mote-agent status");
    assert!(status.contains("; limited: files\n"), "{status}");
    world.power_off(&mut guest);
}
