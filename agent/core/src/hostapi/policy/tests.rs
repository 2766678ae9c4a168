use super::SHOWN;
use super::*;
use crate::hostapi::{exec, port_forward};
use crate::yaml::{Why, YamlError};

const KNOWN: &str = "; known: guestapi, exec, files, mounts, port-forward, metrics, state, templates, network, first-boot, resources, clock, power";

/// Returns the message for an invalid file.
type Faults = Vec<String>;

fn of(text: &str, whose: Whose) -> Result<Policy, Faults> {
    let mut told = Faults::new();
    let tell = &mut |fault: &dyn fmt::Display| told.push(fault.to_string());
    let policy = Policy::from_yaml(text.as_bytes(), whose, true, tell);
    assert!(told.is_empty() || policy == Features::NONE.into());
    if told.is_empty() { Ok(policy) } else { Err(told) }
}

fn mote(text: &str) -> Result<Policy, Faults> {
    of(text, Whose::Mote)
}

fn read(text: &str) -> Result<Features, Faults> {
    mote(text).map(|policy| {
        assert_eq!(policy, policy.features.into());
        policy.features
    })
}

#[test]
fn reads_the_list_of_conditions() {
    let read = |file: &str, whose| {
        let mut faults = 0;
        let policy = Policy::from_yaml(file.as_bytes(), whose, true, &mut |_| faults += 1);
        let list: Vec<_> = policy.ready_when().collect();
        (list.join(", "), policy.features == Features::ALL, faults)
    };
    let both = "ready-when:\n  - init\n  - port 80\nfeatures: {exec: {users: [1]}}\n";
    assert_eq!(read(both, Whose::Mote), ("init, port 80".into(), false, 0));
    let one = "ready-when: [command /bin/x y]";
    assert_eq!(read(one, Whose::Mote), ("command /bin/x y".into(), true, 0));
    for (file, whose) in [
        (one, Whose::Incus),
        ("ready-when: init", Whose::Mote),
        ("ready-when: [[init]]", Whose::Mote),
        ("ready-when: [init, port 0]", Whose::Mote),
    ] {
        assert_eq!(read(file, whose), (String::new(), false, 1), "{file}");
    }
}

#[test]
fn names_the_first_unknown_name_of_a_list() {
    let some = Features::without("exec, files,").unwrap();
    assert_eq!(Policy::from(some).to_string(), "denied: exec files");
    let why = Features::only("exec,ssh,x").unwrap_err().to_string();
    assert_eq!(why, format!("unknown feature \"ssh\"{KNOWN}"));
}

#[test]
fn reads_files_as_incus_does() {
    for all in ["", "# nothing\n", "features:\n", "features: ~"] {
        assert_eq!(read(all), Ok(Features::ALL), "{all}");
    }
    let some = Features::only("exec,port-forward").unwrap();
    for same in [
        "features:\n  exec: true\n  port-forward: true\n  files: false\n",
        "features: {exec: yes, 'port-forward': on}\n",
        "---\nfeatures:\n    exec: True # needed\n    \"port-forward\": true\n    state:\n...\n",
    ] {
        assert_eq!(read(same), Ok(some), "{same}");
    }
    assert_eq!(read("features: {}"), Ok(Features::NONE));
    let bad = [("features:\n- exec\n", 2), ("features: {exec: [true]}", 1), ("exec", 1)];
    for ((bad, line), what) in bad.into_iter().zip(["a map", "true or false", "a map"]) {
        let error = YamlError { line, why: Why::Shape(what) };
        assert_eq!(read(bad).unwrap_err(), [error.to_string()], "{bad}");
    }
    assert!(read("features: {exec: true").is_err());
    assert!(read("features: {exec: true}\n...\nmore").is_err());
}

#[test]
fn reports_all_faults_up_to_a_limit() {
    let text = "feature: {exec: true}\nfeatures:\n  exce: true\n  files: 1\n  mounts: [true]\n  \
                fils: true\n  state: true\n  state: {a: [b]}\nother: [a, {b: c}]\n";
    let expected = [
        "line 1: unknown key \"feature\"; known: features",
        &format!("line 3: unknown feature \"exce\"{KNOWN}"),
        "line 4: \"1\" is neither true nor false",
        "line 5: true or false expected",
        &format!("line 6: unknown feature \"fils\"{KNOWN}"),
        "line 8: \"state\" occurs twice",
        "line 8: true or false expected",
        "line 9: unknown key \"other\"; known: features",
    ];
    assert_eq!(read(text).unwrap_err(), expected);
    // A YAML error is the last fault, after those before it.
    let why = read("feature: x\nfeatures: {exec: *a}").unwrap_err().join("; ");
    assert!(why.ends_with("known: features; line 2: an alias is not supported"), "{why}");
    let many = format!("features: {{{}}}", "x: 1, ".repeat(100));
    assert_eq!(read(&many).unwrap_err().join("; ").matches("unknown").count(), 8);
}

#[test]
fn reports_unknown_words_and_non_booleans_with_their_line() {
    for (bad, why) in [
        ("features: {\"a\\e[2J\": true}", format!(r#"line 1: unknown feature "a?[2J"{KNOWN}"#)),
        ("features: {Exec: true}", format!(r#"line 1: unknown feature "Exec"{KNOWN}"#)),
        ("features:\n  exec: maybe\n", r#"line 2: "maybe" is neither true nor false"#.into()),
        ("features:\n  exec: 'true'\n", r#"line 2: "true" is neither true nor false"#.into()),
        ("features: {exec: true, exec: false}", r#"line 1: "exec" occurs twice"#.into()),
        ("features: {exec: true}\nfeatures: {}", r#"line 2: "features" occurs twice"#.into()),
        ("features: {exec: {}}", "line 1: at least one limit expected".into()),
        ("features: {exec: {users: [[1]]}}", "line 1: an item of a list expected".into()),
        (
            "features: {exec: {users: [4294967296]}}",
            r#"line 1: "4294967296" is not an ID or range of IDs, like 1000-1999"#.into(),
        ),
        ("features: {state: {users: [1]}}", "line 1: true or false expected".into()),
        ("features: {resources: {disks: [sda]}}", "line 1: true or false expected".into()),
        (
            "features: {files: {ports: [1]}}",
            "line 1: unknown key \"ports\"; known: read-only, below; line 1: at least one limit expected".into(),
        ),
    ] {
        assert_eq!(mote(bad).unwrap_err().join("; "), why, "{bad}");
    }
    let long = format!("{}: 1", "x".repeat(1000));
    let why = read(&long).unwrap_err().join("; ");
    assert!(why.contains(&format!("\"{}...\"", "x".repeat(SHOWN))), "{why}");
}

#[test]
fn incus_file_allows_unknown_capabilities_unless_denied() {
    let of = |text| of(text, Whose::Incus).map(|policy| policy.features);
    let old = "exec,templates,network,first-boot,resources,clock,power";
    assert_eq!(of("features: {exec: true}"), Ok(Features::only(old).unwrap()));
    assert_eq!(
        of("features: {}"),
        Ok(Features::only("templates,network,first-boot,resources,clock,power").unwrap())
    );
    let named = "features: {exec: true, templates: false, network: true, first-boot:}";
    assert_eq!(of(named), Ok(Features::only("exec,network,resources,clock,power").unwrap()));
    assert_eq!(of(""), Ok(Features::ALL));
    let limited = of("features: {exec: {users: [1]}, state: true}");
    assert_eq!(limited.unwrap_err(), ["line 1: true or false expected"]);
    assert_eq!(read("features: {exec: true}"), Ok(Features::only("exec").unwrap()));
}

/// Returns what the policy denies about a command, in words; empty if nothing.
fn denied(text: &str, name: &str, user: u32, group: u32) -> String {
    let policy = mote(text).unwrap();
    assert!(policy.allows(Capability::Exec) && policy.to_string().ends_with("; limited: exec"));
    let body = format!(
        r#"{{"command":["{name}","x"],"wait-for-websocket":true,"user":{user},"group":{group}}}"#
    );
    let request = exec::Request::parse(body.as_bytes(), usize::MAX).unwrap();
    policy.check_exec(&request).err().map(|why| why.to_string()).unwrap_or_default()
}

#[test]
fn commands_are_limited_by_user_group_and_path() {
    let users = "features: {exec: {users: [1000, '2000-2999']}}";
    for (user, group, why) in [
        (1000, 1000, ""),
        (2000, 2999, ""),
        (0, 1000, "exec as user 0"),
        (1999, 1000, "exec as user 1999"),
        (3000, 1000, "exec as user 3000"),
        // The group of a request that names none.
        (1000, 0, "exec with group 0"),
    ] {
        assert_eq!(denied(users, "sh", user, group), why, "{user} {group}");
    }
    let groups = "features:\n  exec:\n    users: [1000]\n    groups:\n    - 0\n    - 100\n";
    assert_eq!(denied(groups, "sh", 1000, 0), "");
    assert_eq!(denied(groups, "sh", 1000, 1000), "exec with group 1000");
    assert_eq!(denied("features: {exec: {users: []}}", "sh", 0, 0), "exec as user 0");
    let commands = "features: {exec: {commands: [/usr/bin/uptime, /bin/my app]}}";
    for good in ["/usr/bin/uptime", "/bin/my app"] {
        assert_eq!(denied(commands, good, 0, 7), "", "{good}");
    }
    for bad in
        ["uptime", "usr/bin/uptime", "./uptime", "/usr/bin/uptime/", "/usr//bin/uptime", "/bin/my"]
    {
        assert_eq!(denied(commands, bad, 0, 0), format!("exec of \"{bad}\""));
    }
}

#[test]
fn power_is_answered_without_exec_and_beyond_its_limits() {
    for (features, command, answers) in [
        ("exec: true, power: true", "poweroff", Some((true, true))),
        ("exec: true, power: true", "true", Some((true, false))),
        ("exec: true", "poweroff", Some((true, false))),
        ("power: true", "halt", Some((false, true))),
        ("power: true", "true", None),
        ("exec: {users: [1]}, power: true", "reboot", Some((false, true))),
        ("exec: {commands: [/a]}, power: true", "/a", Some((true, false))),
        ("exec: {commands: [/a]}, power: true", "/sbin/reboot", None),
        ("exec: {users: [1]}", "reboot", None),
    ] {
        let policy = mote(&format!("features: {{{features}}}")).unwrap();
        let body = format!(r#"{{"command":["{command}"],"wait-for-websocket":true}}"#);
        let request = exec::Request::parse(body.as_bytes(), usize::MAX).unwrap();
        let found = policy.answers(&request).ok().map(|(runs, power)| (runs, power.is_some()));
        assert_eq!(found, answers, "{features}: {command}");
    }
}

#[test]
fn ports_are_those_of_the_guest_itself() {
    let policy = mote("features: {port-forward: {ports: [22, 8080-8090]}}").unwrap();
    let check = |name: &str, port| {
        let target = port_forward::Target { name: name.into(), port };
        policy.check_port(&target).err().map(|why| why.to_string()).unwrap_or_default()
    };
    for (name, port, why) in [
        ("127.0.0.1", 22, ""),
        ("localhost", 8080, ""),
        ("::1", 8090, ""),
        ("127.0.0.1", 23, "port-forward to port 23"),
        ("127.0.0.1", 8091, "port-forward to port 8091"),
        ("10.0.0.1", 22, "port-forward beyond the guest's ports, to \"10.0.0.1\""),
        ("0.0.0.0", 22, "port-forward beyond the guest's ports, to \"0.0.0.0\""),
        ("unix:/s", 0, "port-forward beyond the guest's ports, to \"unix:/s\""),
        ("example.org", 22, "port-forward beyond the guest's ports, to \"example.org\""),
    ] {
        assert_eq!(check(name, port), why, "{name} {port}");
    }
    let target = port_forward::Target { name: "10.0.0.1".into(), port: 1 };
    assert_eq!(Policy::from(Features::ALL).check_port(&target), Ok(()));
}

#[test]
fn files_are_limited_to_reading_and_to_directories() {
    let policy = mote("features: {files: {read-only: yes, below: [/srv, /a/b/]}}");
    let policy = policy.unwrap();
    assert!(policy.read_only());
    assert_eq!(policy.below().collect::<Vec<_>>(), ["", "/srv", "/a/b/"]);
    assert!(policy.to_string().ends_with(" clock power; limited: files"), "{policy}");
    let unlimited = mote("features: {files: {read-only: false}}").unwrap();
    assert_eq!(unlimited, Features::only("files").unwrap().into());
}

#[test]
fn added_resources_are_used_separately_and_disks_only_on_request() {
    let parts = [Part::Cpus, Part::Memory, Part::Disks];
    for (text, used, is_limited) in [
        ("resources: true", [true, true, false], false),
        ("resources: false", [false; 3], false),
        ("state: true", [false; 3], false),
        ("resources: {disks: false}", [true, true, false], false),
        ("resources: {disks: true, cpus: no}", [false, true, true], true),
        ("resources: {memory: false}", [true, false, false], true),
        ("resources: {memory: true}", [true, true, false], false),
        ("resources: {disks: true}", [true; 3], false),
    ] {
        let policy = mote(&format!("features: {{{text}}}")).unwrap();
        assert_eq!(parts.map(|part| policy.uses(part)), used, "{text}");
        assert_eq!(policy.to_string().ends_with("; limited: resources"), is_limited, "{policy}");
    }
    assert_eq!(parts.map(|part| Policy::from(Features::ALL).uses(part)), [true, true, false]);
}

#[test]
fn reports_an_invalid_limit_with_its_line() {
    let text = "features:\n  exec: {user: [1], users: 5, users: [1]}\n  files:\n    read-only: ~\n    \
                below: [srv, /a/../b, /, \"/a\\n/b\"]\n  port-forward:\n    ports: [0]\n";
    let expected = [
        "line 2: unknown key \"user\"; known: users, groups, commands",
        "line 2: a list expected",
        "line 2: \"users\" occurs twice",
        "line 4: \"~\" is neither true nor false",
        "line 5: \"srv\" is not an absolute path without '..'",
        "line 5: \"/a/../b\" is not an absolute path without '..'",
        "line 5: \"/\" is not an absolute path without '..'",
        "line 5: \"/a?/b\" is not an absolute path without '..'",
    ];
    assert_eq!(mote(text).unwrap_err(), expected);
    for port in ["0", "65536", "80-79", "-1", "+1", "022", "1-", "a", "~", "''", "1 - 2"] {
        let why = mote(&format!("features: {{port-forward: {{ports: [{port}]}}}}"));
        let shown = port.trim_matches('\'');
        let expected =
            format!("line 1: \"{shown}\" is not a port or range of ports, like 8080-8090");
        assert_eq!(why.unwrap_err(), [expected]);
    }
    let many = |count| format!("features: {{exec: {{users: [{}]}}}}", "1, ".repeat(count));
    assert!(mote(&many(64)).is_ok());
    assert_eq!(mote(&many(65)).unwrap_err(), ["line 1: at most 64 items expected"]);
}

#[test]
fn shows_limits_after_denials() {
    let all = "guestapi: true, mounts: true, metrics: true, state: true, templates: true, network: true, \
               first-boot: true, resources: true, clock: true, power: true";
    let text = format!(
        "features: {{{all}, exec: {{users: [1]}}, files: {{read-only: true}}, port-forward: {{ports: [1]}}}}"
    );
    let mut policy = mote(&text).unwrap();
    assert_eq!(policy.to_string(), "limited: exec files port-forward");
    policy.features = policy.features.and(Features::without("exec,files").unwrap());
    assert_eq!(policy.to_string(), "denied: exec files; limited: port-forward");
    assert_eq!(Policy::from(Features::ALL).to_string(), "everything is allowed");
}

#[test]
fn ignores_limits_of_capabilities_that_are_not_built() {
    let text =
        b"features: {exec: {users: [x], no: {a: [1]}}, files: {read-only: true}, state: true}";
    let policy = Policy::from_yaml(text, Whose::Mote, false, &mut |fault| panic!("{fault}"));
    assert_eq!(policy, Features::only("exec,files,state").unwrap().into());
    let text = b"features: {exec: [root]}";
    let policy = Policy::from_yaml(text, Whose::Mote, false, &mut |_| {});
    assert_eq!(policy, Features::NONE.into());
}

#[test]
fn accesses_files_as_the_first_user_of_commands() {
    for (features, ids) in [
        ("files: true", None),
        ("exec: true, files: true", None),
        ("exec: {commands: [/a]}, files: true", None),
        ("exec: {groups: [5]}, files: true", None),
        ("exec: {users: [7, 0]}, files: true", None),
        ("exec: {users: ['0-9']}, files: true", None),
        ("exec: {users: []}, files: true", None),
        ("exec: {users: [7], groups: []}, files: true", None),
        ("exec: {users: [7]}, files: {read-only: true}", None),
        ("exec: {users: [7]}, files: true", Some(["7", "7"])),
        ("exec: {users: [8-9, 7], groups: [3, 4-9]}, files: true", Some(["8", "3"])),
        ("exec: {users: [7], groups: [5, 0]}, files: {below: [/srv]}", Some(["7", "5"])),
        ("exec: {users: [7], commands: [/a]}, files: {below: [/srv]}", Some(["7", "7"])),
    ] {
        let policy = mote(&format!("features: {{{features}}}")).unwrap();
        assert_eq!(policy.files_as(), ids, "{features}");
    }
}
