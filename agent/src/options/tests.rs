use super::command::Sftp;
use mote_core::hostapi::exec::STARTED_BY;

use super::*;

fn called(line: &str) -> Result<Options, String> {
    parse(line.split_whitespace().map(OsString::from))
}

fn parsed(line: &str) -> Result<Options, String> {
    called(&format!("mote-agent {line}"))
}

#[test]
fn values_come_after_a_space_or_an_equals_sign() {
    for line in ["--config-dir /x --interval-started=50", "--config-dir=/x --interval-started 50"] {
        let options = parsed(line).unwrap();
        assert_eq!(options.config_dir, Some("/x".into()));
        assert_eq!(options.intervals[1], Some(Duration::from_millis(50)));
        assert_eq!(options.command, Command::Run);
    }
}

#[test]
fn commands_take_exactly_their_arguments() {
    assert_eq!(parsed("get user.a").unwrap().command, Command::Ask(Ask::Get("user.a".into())));
    assert_eq!(parsed("--debug status").unwrap().command, Command::Ask(Ask::Status));
    // `grow` is the user's command; the worker is `grow-worker`.
    for (line, disk, dry_run) in [
        ("grow", None, false),
        ("grow --dry-run live", Some("live"), true),
        ("grow vda", Some("vda"), false),
    ] {
        let options = parsed(line).unwrap();
        let command = Command::Grow(disk.map(str::to_owned));
        assert_eq!((options.command, options.dry_run), (command, dry_run));
    }
    let all = "get; get a b; report; report x; status x; grow vda vdb; mount-worker 9999999999 1; \
         mount-worker 9; grow-worker live; grow-worker --dry-run; status --dry-run; --dry-run; \
         nope; --nope; --root; --debug=1; --flavour x";
    for bad in all.split("; ") {
        assert!(parsed(bad).is_err(), "{bad}");
    }
    for bad in ["0", "+1000", "9s"] {
        assert!(parsed(&format!("--interval-connect {bad}")).is_err(), "{bad}");
    }
}

#[test]
fn every_command_accepts_help() {
    let all = "ready; started; get; get user.a; config; metadata; devices; events; status; report; \
         report state; sftp-server; mount-worker; --check";
    for command in all.split("; ") {
        for line in [format!("{command} --help"), format!("-h {command}")] {
            assert_eq!(parsed(&line).unwrap().command, Command::Help, "{line}");
        }
    }
}

#[test]
fn parses_the_arguments_of_sftp_server_separately() {
    let plain = parsed("--root /r --debug sftp-server").unwrap();
    assert_eq!((plain.command, plain.debug), (Command::SftpServer(Sftp::default()), true));
    let options = parsed("sftp-server -d /x").unwrap();
    let how = |read_only, below: &[&str]| {
        let below = below.iter().map(Into::into).collect();
        Command::SftpServer(Sftp {
            directory: Some("/x".into()),
            read_only,
            below,
            ..Sftp::default()
        })
    };
    assert_eq!(options.command, how(false, &[]));
    let limited = parsed("sftp-server -b /srv -R -d /x -b /a").unwrap();
    assert_eq!(limited.command, how(true, &["/srv", "/a"]));
    assert!(!options.debug);
    for bad in ["sftp-server -d", "sftp-server -e", "sftp-server -d /x y", "sftp-server /x"] {
        assert!(parsed(bad).is_err(), "{bad}");
    }
    let get = Command::Ask(Ask::Get("sftp-server".into()));
    assert_eq!(parsed("get sftp-server").unwrap().command, get);
}

#[test]
fn accepts_the_go_agents_arguments_under_their_names() {
    let options = called("/run/incus_agent/incus-agent -d -s /run/x whatever else").unwrap();
    assert_eq!(options.command, Command::Run);
    assert_eq!(options.secrets_dir, Some("/run/x".into()));
    assert_eq!(called("lxd-agent --secrets-location=/y").unwrap().secrets_dir, Some("/y".into()));
    assert!(called("lxd-agent --nope").is_err());
    assert!(called("mote-agent whatever").is_err());
}

#[test]
fn accepts_common_names_of_version_and_help() {
    for word in ["-V", "--version", "version", "--debug -V"] {
        assert_eq!(parsed(word).map(|options| options.command), Ok(Command::Version), "{word}");
    }
    for word in ["-h", "--help", "help", "help get", "-V --help"] {
        assert_eq!(parsed(word).map(|options| options.command), Ok(Command::Help), "{word}");
    }
    // For a Go agent -v means verbose. Under mote's own name, users expect it to mean version.
    for word in ["-v", "--verbose"] {
        assert_eq!(parsed(word).err(), Some(format!("unknown option {word}")));
    }
    for name in ["lxd-agent", "incus-agent"] {
        for word in ["-v", "--verbose"] {
            let options = called(&format!("{name} {word}")).unwrap();
            assert!(options.debug && options.command == Command::Run, "{name} {word}");
        }
        // The Go agents ignore arguments, so these two are not commands there.
        for word in ["version", "help"] {
            assert_eq!(
                called(&format!("{name} {word}")).unwrap().command,
                Command::Run,
                "{name} {word}"
            );
        }
        assert_eq!(called(&format!("{name} --version")).unwrap().command, Command::Version);
    }
}

#[test]
fn rejects_repeated_options_with_one_value() {
    for name in ["--port", "--config-dir", "--root", "--flavour", "--secrets-location"] {
        let why = parsed(&format!("{name} lxd {name}=incus")).unwrap_err();
        assert_eq!(why, format!("{name} is given twice"));
    }
    assert!(parsed("-s /a --secrets-location /b").is_err());
    assert!(parsed("--interval-connect 10 --interval-connect 20").is_err());
    assert!(parsed("--deny exec --deny files --port /a --root /b").is_ok());
    // The last occurrence counts, as in Go.
    let theirs = called("incus-agent -s /a -s /b").unwrap();
    assert_eq!(theirs.secrets_dir, Some("/b".into()));
}

#[test]
fn json_is_for_status_and_check() {
    for line in ["--json status", "status --json", "--check --json"] {
        assert!(parsed(line).is_ok_and(|options| options.json), "{line}");
    }
    for line in ["--json", "--json get user.a", "ready --json"] {
        assert_eq!(parsed(line).err(), Some("--json needs status or --check".into()), "{line}");
    }
}

#[test]
fn allow_and_deny_only_restrict() {
    let policy = |line| parsed(line).unwrap().features;
    assert_eq!(policy(""), Features::ALL);
    let both = policy("--allow exec,state --deny exec");
    assert_eq!(both, policy("--deny=exec --allow=state,exec"));
    assert_eq!(both, Features::only("state").unwrap());
    for option in ["--deny", "--allow"] {
        let why = parsed(&format!("{option} exec,ssh")).unwrap_err();
        assert!(why.starts_with(&format!("{option}: unknown feature \"ssh\"; known: ")), "{why}");
    }
}

#[test]
fn only_the_agent_starts_workers_and_a_host_cannot_choose_files() {
    let may = |line: &str, by: Option<&str>| {
        parsed(line).unwrap().check_starter(by.map(OsStr::new)).is_ok()
    };
    let all =
        "sftp-server; mount-worker 9 1; after-resume clock; grow-worker; nics 2; ready-when init";
    for worker in all.split("; ") {
        assert!(may(worker, Some(BY_AGENT)), "{worker}");
        for by in [None, Some(BY_HOST), Some(""), Some("agent ")] {
            assert!(!may(worker, by), "{worker} {by:?}");
        }
    }
    for command in ["", "sync-time", "grow", "report state", "--remember /x"] {
        assert!(may(command, None) && may(command, Some(BY_AGENT)), "{command}");
        assert!(!may(command, Some(BY_HOST)), "{command}");
    }
    let all = "freeze --for 9s; thaw; trim; status --json; ready; get a; --check; \
         connect [::1]:22 --timeout 5";
    for command in all.split("; ") {
        assert!(may(command, None) && may(command, Some(BY_HOST)), "{command}");
        let all = "--root /srv; --config-dir /x; -s /x; --remember /x; --port /x; --vsock-unix /x";
        for paths in all.split("; ") {
            let line = format!("{paths} {command}");
            assert!(may(&line, None) && !may(&line, Some(BY_HOST)), "{line}");
        }
    }
    let text = [STARTED_BY, "=", BY_AGENT].concat();
    assert_eq!(crate::workers::run::AS_AGENT.to_str(), Ok(text.as_str()));
}
