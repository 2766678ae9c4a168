//! The devlxd-only build (`--no-default-features --features shell`), which `scripts/test` names in
//! `MOTE_AGENT`: devlxd works, and everything else is refused with a reason.

use mote_tests::prelude::*;

#[test]
fn serves_devlxd_and_reports_missing_capabilities() {
    for flavour in ["lxd", "incus"] {
        let mut pair = Pair::start(flavour, &["user.foo=bar"]);
        assert_eq!(pair.ask("GET", "/1.0/config/user.foo"), (200, "bar".into()));
        assert_eq!(pair.ask_with("PATCH", "/1.0", "", "{\"state\":\"Ready\"}").0, 200);
        let query = |method: &str, path: &str, body: &str| -> String {
            pair.host.run(&["query", NAME, method, path, body])
        };
        assert!(query("GET", "/1.0", "").starts_with("200"));
        assert!(query("GET", "/1.0/operations", "").starts_with("200"));
        let forward = ("POST", "/1.0/port-forward", "port-forward");
        for (method, path, word) in [
            ("GET", "/1.0/state", "state"),
            ("GET", "/1.0/metrics", "metrics"),
            ("GET", "/1.0/sftp", "files"),
            ("POST", "/1.0/exec", "exec"),
            ("GET", "/1.0/operations/x/websocket", "exec"),
        ]
        .into_iter()
        .chain((flavour == "incus").then_some(forward))
        {
            let answer = query(method, path, "{}");
            let text = format!("This build of the agent does not serve {word}");
            assert!(answer.starts_with("501") && answer.contains(&text), "{path}: {answer}");
        }
        let plugged = "{\"type\":\"device\",\"metadata\":{\"action\":\"added\",\"name\":\"d\",\
                       \"config\":{\"type\":\"disk\",\"path\":\"/mnt\"}}}";
        assert!(query("POST", "/1.0/events", plugged).starts_with("200"));
        pair.assert_alive();
    }
}

#[test]
fn lacks_subcommands_and_check_lists_missing_capabilities() {
    for words in
        [&["report", "state"][..], &["report", "metrics"], &["sftp-server"], &["freeze"], &["thaw"]]
    {
        let output = Command::new(agent()).args(words).envs([AS_AGENT]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("this build lacks that command"), "{words:?}: {said}");
    }
    let output = Command::new(agent()).arg("--check").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let without = "build: without chacha20, credentials, exec, files, first-boot, freeze, initramfs, \
                   metrics, mounts, port-forward, ready-when, remember, resources, restore, state";
    assert!(said.contains(without), "{said}");
}
