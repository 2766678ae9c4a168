use super::*;

fn parsed(members: &str) -> Result<Request, Refusal> {
    Request::parse(format!("{{\"wait-for-websocket\":true,{members}}}").as_bytes(), usize::MAX)
}

#[test]
fn reads_a_huge_environment_quickly_and_the_last_of_a_name_counts() {
    // CPU time of this thread, which does not include the machine's other work, ns.
    let cpu = || {
        let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        stat.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let fastest = |count: u32, turns: u32| {
        let names = (0..count).rev().map(|number| format!("\"{number:05}\":\"\","));
        let members: String = names.collect();
        let body = format!("\"command\":[\"a\"],\"environment\":{{{members}\"00007\":\"last\"}}");
        let times = (0..5).map(|_| {
            let begun = cpu();
            for _ in 0..turns {
                assert_eq!(parsed(&body).unwrap().variable("00007"), Some("last"));
            }
            cpu() - begun
        });
        times.min().unwrap()
    };
    // Comparing each name with all others takes 16 times as long.
    let (few, many) = (fastest(5_600, 16), fastest(89_600, 1));
    assert!(many < 8 * few, "{few} ns for 16 times 5,600, {many} ns for 89,600");
}

#[test]
fn rejects_invalid_requests() {
    for none in ["[]", "[\"\"]", "null"] {
        assert_eq!(parsed(&format!("\"command\":{none}")), Err(Refusal::NoCommand));
    }
    assert_eq!(parsed(r#""command":["a\u0000b"]"#), Err(Refusal::Nul));
    assert_eq!(Request::parse(br#"{"command":["a"]}"#, usize::MAX), Err(Refusal::NoWebsocket));
    for wrong in ["1", "\"a\"", "{}", "[1]"] {
        let why = parsed(&format!("\"command\":{wrong}")).unwrap_err();
        assert_eq!(why, Refusal::Json(JsonError::Shape), "{wrong}");
    }
    for wrong in [r#""user":-1"#, r#""user":4294967296"#, r#""environment":[]"#] {
        assert!(parsed(&format!("\"command\":[\"a\"],{wrong}")).is_err(), "{wrong}");
    }
    assert!(Request::parse(b"{", usize::MAX).is_err());
}

#[test]
fn a_terminal_size_needs_both_sides() {
    for width in ["\"width\":0,", "\"width\":70000,", ""] {
        let request = parsed(&format!("\"command\":[\"a\"],{width}\"height\":30"));
        assert_eq!(request.unwrap().size, TERMINAL, "{width}");
    }
}

#[test]
fn defaults_are_those_of_the_go_agents() {
    let with_defaults = |members: &str, has: &str| {
        let mut request = parsed(members).unwrap();
        request.add_defaults(&|directory| directory == has);
        request
    };
    let request = with_defaults(r#""command":["ls"]"#, "");
    let path = format!("PATH={PATH}");
    let all = [&*path, "HOME=/root", "USER=root", "LANG=C.UTF-8"];
    assert_eq!(request.environment.texts().collect::<Vec<_>>(), all);
    assert_eq!((request.directory(), request.program().directories().count()), ("/root", 6));
    let user = r#""command":["ls"],"user":5,"environment":{"PATH":"/x"}"#;
    let user = with_defaults(user, "snap/bin");
    assert_eq!(user.program(), Program { name: c"ls", path: "/x:/snap/bin" });
    assert_eq!((user.variable("HOME"), user.directory()), (None, "/"));
    let on_nixos = with_defaults(r#""command":["ls"]"#, "run/current-system/sw/bin");
    let path = format!("{PATH}:/run/current-system/sw/bin");
    assert_eq!(on_nixos.variable("PATH"), Some(&*path));
}

#[test]
fn escapes_need_memory_only_for_their_text() {
    let word = r"\u0001".repeat(100_000);
    let request = parsed(&format!("\"command\":[\"a\",\"{word}\"]")).unwrap();
    assert_eq!(request.held(), 100_003);
    assert!(!request.is_too_long());
    assert_eq!(request.command.texts().nth(1).map(str::len), Some(100_000));
}

#[test]
fn recognizes_commands_too_long_for_any_system() {
    let is_too_long =
        |words: String| parsed(&format!("\"command\":[{words}]")).unwrap().is_too_long();
    // Each string takes nine bytes: the NUL and the pointer.
    for (count, expected) in [(690_000, false), (700_000, true)] {
        assert_eq!(is_too_long(format!("\"a\"{}", ",\"\"".repeat(count))), expected);
    }
    for (length, expected) in [(MAX_EXECVE - 9, false), (MAX_EXECVE - 8, true)] {
        assert_eq!(is_too_long(format!("\"{}\"", "x".repeat(length))), expected);
    }
}

#[test]
fn metadata_truncates_long_commands() {
    let word = "w".repeat(1000);
    let many = format!(",\"{word}\"").repeat(2000);
    let escapes = r"\u0001".repeat(20_000);
    let variables = format!("\"B\":\"{escapes}\",\"A\":\"b\"");
    let body = format!("\"command\":[\"a\"{many}],\"environment\":{{{variables}}}");
    let request = parsed(&body).unwrap();
    let mut out = String::new();
    request.write_metadata(&mut Writer::new(&mut out), [("control", "s")].into_iter());
    assert!(out.len() <= 2 * SHOWN + 100, "{}", out.len());
    let shown: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&shown["command"][0], &shown["command"][1]), (&"a".into(), &word.into()));
    assert_eq!(shown["command"].as_array().unwrap().len(), 33);
    assert_eq!(shown["environment"], serde_json::json!({"A": "b"}));
    assert_eq!(shown["interactive"], false);
}

#[test]
fn reads_control_messages_and_ignores_invalid_ones() {
    let size = Some(Control::Resize(Size { width: 80, height: 24 }));
    for (message, meaning) in [
        (r#"{"command":"window-resize","args":{"width":"80","height":"24"},"signal":0}"#, size),
        (r#"{"command":"window-resize","args":{"width":80,"height":24}}"#, size),
        (r#"{"command":"window-resize","args":{"width":"0","height":"24"}}"#, None),
        (r#"{"command":"window-resize","args":{"width":"-1","height":"99999999999"}}"#, None),
        (r#"{"command":"window-resize","args":null}"#, None),
        (r#"{"command":"signal","args":null,"signal":15}"#, Some(Control::Signal(15))),
        (r#"{"command":"signal","signal":0}"#, None),
        (r#"{"command":"signal","signal":65}"#, None),
        (r#"{"command":"signal","signal":-9}"#, None),
        (r#"{"command":"dance"}"#, None),
        ("[]", None),
        ("x", None),
        ("", None),
    ] {
        assert_eq!(control(message.as_bytes()), meaning, "{message}");
    }
}

#[test]
fn a_host_limited_to_a_program_cannot_run_another() {
    let mut request = Request::parse(
        br#"{"command":["/a"],"wait-for-websocket":true,"environment":{"LD_PRELOAD":"/tmp/x","PATH":"/tmp",
            "TERM":"xterm","LC_ALL":"C","LANG":"/tmp/x","LC_TIME":"%n","HOME":"/tmp","MOTE_STARTED_BY":"agent","TERMINFO":"y","LC":"z"}}"#,
        usize::MAX,
    )
    .unwrap();
    request.drop_environment();
    request.add_defaults(&|_| false);
    let mut left: Vec<_> = request.environment.texts().collect();
    left.sort_unstable();
    let path = format!("PATH={PATH}");
    let by = [STARTED_BY, "=", BY_HOST].concat();
    let kept = ["HOME=/root", "LANG=C.UTF-8", "LC_ALL=C", &by, &path, "TERM=xterm", "USER=root"];
    assert_eq!(left, kept);
}

#[test]
fn missing_is_127_and_forbidden_126() {
    let codes = [1, 2, 7, 13, 20].map(|errno| not_run(Some(errno)));
    assert_eq!((codes, not_run(None)), ([126, 127, -1, 126, 127], -1));
}
