//! Installs the agent from a release's apt repository, until the VM is CONNECTED. `scripts/test
//! release` creates the repository. `MOTE_DEB` is its package, and `image/debian` finds the
//! repository next to it.

use mote_tests::NAME;

use crate::world::{Plan, World, image};

fn from_the_line_to_connected(release: &str) {
    let log = std::fs::read_to_string(image("systemd", release).join("log")).expect("a log");
    assert!(log.contains("deb [signed-by=/srv/apt/mote.gpg] file:/srv/apt ./"), "{log}");
    assert!(log.contains("Setting up mote-agent ("), "{log}");
    assert!(!log.contains("authenticated") && !log.contains("not signed"), "{log}");
    let mut world = World::boot("systemd", release, &Plan::default());
    world.connected();
    let said = world.sh("echo; mote-agent --version; mote-agent status");
    assert!(said.contains("state: CONNECTED\n"), "{said}");
    let version = world.sh("dpkg-query -f '${Version}' -W mote-agent");
    let log = world.sh("journalctl -o cat -u mote-agent");
    for (text, form) in [
        (&said, format!("\nmote-agent {version} (")),
        (&said, format!("\nversion: {version} (")),
        (&log, format!("mote-agent {version} (")),
        (&world.host.run(&["info", NAME]), format!("mote-agent as lxd-agent {version}, ")),
    ] {
        assert!(text.contains(&form), "{form}: {text}");
    }
}

mote_tests::tests! {
    of_debian_12: from_the_line_to_connected("bookworm"),
    of_debian_13: from_the_line_to_connected("trixie"),
}
