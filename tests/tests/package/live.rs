//! The package in a Debian root where an agent runs: process 1 is called `init`, sysvinit's scripts
//! start the agent, and a host calls it over unix sockets.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use mote_tests::{Host, Process, wait};

use crate::built::{deb, newer};
use crate::root::Root;

const LIMIT: Duration = Duration::from_secs(60);

/// Installs the package, copies what the test needs from `/run`, and ends on request.
const INIT: &str = r#"#!/bin/sh
cd /srv
dpkg -i "$1" >/srv/said 2>&1
echo "$?" >/srv/installed
while [ ! -e /srv/over ]; do
    cp /run/mote/status /srv/status.new 2>/dev/null && mv /srv/status.new /srv/status || rm -f /srv/status
    sleep 0.1
done
"#;

struct Live {
    host: Host,
    init: Process,
    root: Root,
}

impl Live {
    fn start() -> Self {
        let root = Root::new("sysvinit");
        let package = root.take(&deb());
        let package = package.trim_start_matches("/srv/");
        root.program("srv/init", INIT);
        // The real program needs a record of the boot.
        root.program("sbin/runlevel", "#!/bin/sh\necho N 2\n");
        let directory = root.0.0.join("srv");
        let mut host = Host::on_sockets(&directory, &directory.join("vs"), "lxd", &[]);
        host.start();
        let share = host.share.strip_prefix(&root.0.0).expect("a share in the root");
        let options =
            format!("--vsock-unix /srv/vs --flavour lxd --config-dir /{}", share.display());
        mote_tests::put(root.0.0.join("etc/default/mote-agent"), format!("OPTIONS='{options}'\n"));
        let init = Process::start(&mut root.command(true, &["/srv/init", package]));
        let live = Self { host, init, root };
        wait("the package", LIMIT, || live.text("srv/installed"));
        assert_eq!(
            live.text("srv/installed").as_deref(),
            Some("0\n"),
            "{:?}",
            live.text("srv/said")
        );
        live.connected(1);
        let log = std::fs::metadata(live.root.0.0.join("var/log/mote-agent.log")).expect("its log");
        assert_eq!(log.permissions().mode() & 0o777, 0o600, "the words of commands are in it");
        assert!(live.root.processes().iter().any(|line| line.contains("/usr/sbin/mote-agent")));
        live
    }

    fn text(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.root.0.0.join(path)).ok()
    }

    /// Waits for the given number of CONNECTED lines in the log, because this host has no status
    /// port.
    fn connected(&self, times: usize) {
        let log = || self.text("var/log/mote-agent.log").unwrap_or_default();
        let enough = || (log().matches(": CONNECTED ").count() >= times).then_some(());
        wait("CONNECTED", LIMIT, enough);
    }

    /// Returns the agent's pid in the root's namespace.
    fn agent(&self) -> Option<String> {
        let status: serde_json::Value = serde_json::from_str(&self.text("srv/status")?).ok()?;
        Some(status["pid"].as_u64()?.to_string())
    }

    fn some_agent(&self) -> String {
        wait("an agent", LIMIT, || self.agent()).0
    }

    fn exec(&self, words: &[&str]) -> String {
        self.host.exec(words).expect("a command that succeeds")
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ended = std::fs::write(self.root.0.0.join("srv/over"), "");
        let _code = self.init.0.wait();
    }
}

#[test]
fn an_upgrade_by_the_host_completes() {
    let live = Live::start();
    let above = live.root.take(&newer());
    let first = live.some_agent();
    // The wait would reveal a restart after the upgrade.
    let upgrade = format!("dpkg -i {above} && sleep 5 && echo whole");
    let said = live.exec(&["sh", "-c", &upgrade]);
    assert!(said.ends_with("whole\n"), "{said}");
    let waits = "runs a command in this guest; the new program starts after it\n";
    assert!(said.contains(waits), "{said}");
    // Same process, new program.
    let program = || live.exec(&["readlink", &format!("/proc/{first}/exe")]);
    assert_eq!(program(), "/usr/sbin/mote-agent (deleted)\n", "the first agent, until then");
    live.connected(2);
    assert_eq!(live.some_agent(), first);
    assert_eq!(program(), "/usr/sbin/mote-agent\n");
    live.exec(&["/etc/init.d/mote-agent", "reload"]);
    live.connected(3);
    assert_eq!(live.some_agent(), first);
}

#[test]
fn a_removal_by_the_host_completes() {
    let live = Live::start();
    let said = live.exec(&["sh", "-c", "dpkg -P mote-agent && sleep 3 && echo whole"]);
    assert!(said.ends_with("whole\n"), "{said}");
    wait("the agent's end", LIMIT, || live.agent().is_none().then_some(()));
    let processes = || live.root.processes();
    // /proc also shows the roots of other process namespaces.
    wait("its processes' end", LIMIT, || {
        let left = processes();
        left.iter().all(|line| !line.contains("/mote-agent")).then_some(())
    });
    assert!(!live.root.has("/etc/init.d/mote-agent"));
}
