use super::*;
use crate::yaml::Why;
use std::format;
use std::string::ToString;

fn read(text: &str) -> Result<Policy, std::string::String> {
    let mut told = std::vec::Vec::new();
    let policy = Policy::from_yaml(text.as_bytes(), &mut |fault| told.push(fault.to_string()));
    assert!(told.is_empty() || policy == Policy::NONE);
    if told.is_empty() { Ok(policy) } else { Err(told.join("; ")) }
}

#[test]
fn each_capability_has_a_switch_of_its_own() {
    for one in CAPABILITIES {
        assert_eq!(Capability::parse(one.name()), Some(one));
        let (only, without) = (Policy::only(one.name()), Policy::without(one.name()));
        for other in CAPABILITIES {
            assert_eq!(only.unwrap().allows(other), one == other);
            assert_eq!(without.unwrap().allows(other), one != other);
            assert!(Policy::ALL.allows(other) && !Policy::NONE.allows(other));
        }
    }
    assert_eq!(Policy::without(""), Ok(Policy::ALL));
    assert_eq!(Policy::only(""), Ok(Policy::NONE));
}

#[test]
fn lists_are_taken_whole_or_not_at_all() {
    let some = Policy::without("exec, files,").unwrap();
    assert_eq!(some.to_string(), "denied: exec files");
    assert_eq!(Policy::ALL.to_string(), "everything is allowed");
    for bad in ["exec files", "Exec", "exec,sftp", "-"] {
        let word = bad.rsplit(',').next().unwrap();
        assert_eq!(Policy::without(bad), Err(NoCapability(word)), "{bad}");
    }
    let known = "guestapi, exec, files, mounts, port-forward, metrics, state";
    let why = Policy::only("exec,ssh").unwrap_err().to_string();
    assert_eq!(why, format!("unknown feature \"ssh\"; known: {known}"));
}

#[test]
fn nothing_gives_back_what_something_else_has_taken() {
    let file = Policy::without("exec").unwrap();
    let option = Policy::only("exec,state").unwrap();
    let both = file.and(option);
    assert_eq!(both, option.and(file));
    assert_eq!(both, Policy::only("state").unwrap());
}

#[test]
fn files_mean_what_they_mean_to_incus() {
    for all in ["", "# nothing\n", "features:\n", "features: ~"] {
        assert_eq!(read(all), Ok(Policy::ALL), "{all}");
    }
    let some = Policy::only("exec,port-forward").unwrap();
    for same in [
        "features:\n  exec: true\n  port-forward: true\n  files: false\n",
        "features: {exec: yes, 'port-forward': on}\n",
        "---\nfeatures:\n    exec: True # needed\n    \"port-forward\": true\n    state:\n...\n",
    ] {
        assert_eq!(read(same), Ok(some), "{same}");
    }
    assert_eq!(read("features: {}"), Ok(Policy::NONE));
    for (bad, line, what) in [
        ("features:\n- exec\n", 2, "a map"),
        ("features: {exec: [true]}", 1, "true or false"),
        ("exec", 1, "a map"),
    ] {
        let error = YamlError { line, why: Why::Shape(what) };
        assert_eq!(read(bad), Err(error.to_string()), "{bad}");
    }
    assert!(read("features: {exec: true").is_err());
    assert!(read("features: {exec: true}\n...\nmore").is_err());
}

#[test]
fn all_that_is_wrong_is_named_at_once_up_to_a_limit() {
    let text = "feature: {exec: true}\nfeatures:\n  exce: true\n  files: 1\n  mounts: [true]\n  \
                fils: true\n  state: true\n  state: {a: [b]}\nother: [a, {b: c}]\n";
    let known = "; known: guestapi, exec, files, mounts, port-forward, metrics, state";
    let expected = [
        "line 1: unknown key \"feature\"; known: features",
        &format!("line 3: unknown feature \"exce\"{known}"),
        "line 4: \"1\" is neither true nor false",
        "line 5: true or false expected",
        &format!("line 6: unknown feature \"fils\"{known}"),
        "line 8: \"state\" is there twice",
        "line 8: true or false expected",
        "line 9: unknown key \"other\"; known: features",
    ];
    assert_eq!(read(text).unwrap_err(), expected.join("; "));
    // A YAML error is the last fault, after those before it.
    let why = read("feature: x\nfeatures: {exec: *a}").unwrap_err();
    assert!(why.ends_with("known: features; line 2: an alias is not supported"), "{why}");
    let many = format!("features: {{{}}}", "x: 1, ".repeat(100));
    assert_eq!(read(&many).unwrap_err().matches("unknown").count(), FAULTS);
}

#[test]
fn a_word_that_is_not_known_or_no_truth_is_named_with_its_line() {
    let known = "known: guestapi, exec, files, mounts, port-forward, metrics, state";
    for (bad, why) in [
        ("feature: {exec: true}", r#"line 1: unknown key "feature"; known: features"#.into()),
        (
            "# a\nfeature:\n  exec: true\n",
            r#"line 2: unknown key "feature"; known: features"#.into(),
        ),
        (
            "features: {exec: true}\nother: {exec: false}",
            r#"line 2: unknown key "other"; known: features"#.into(),
        ),
        (
            "features:\n  exec: true\n  port_forward: true\n",
            format!(r#"line 3: unknown feature "port_forward"; {known}"#),
        ),
        (
            "features: {new-thing: false}",
            format!(r#"line 1: unknown feature "new-thing"; {known}"#),
        ),
        ("features: {\"a\\e[2J\": true}", format!(r#"line 1: unknown feature "a?[2J"; {known}"#)),
        ("features: {Exec: true}", format!(r#"line 1: unknown feature "Exec"; {known}"#)),
        ("features:\n  exec: maybe\n", r#"line 2: "maybe" is neither true nor false"#.into()),
        ("features:\n  exec: 'true'\n", r#"line 2: "true" is neither true nor false"#.into()),
        ("features:\n  exec: 1\n", r#"line 2: "1" is neither true nor false"#.into()),
        ("features: {exec: true, exec: false}", r#"line 1: "exec" is there twice"#.into()),
        ("features: {exec: true}\nfeatures: {}", r#"line 2: "features" is there twice"#.into()),
    ] {
        let bad = bad.to_string();
        assert_eq!(read(&bad), Err(why), "{bad}");
    }
    let long = format!("{}: 1", "x".repeat(1000));
    let why = read(&long).unwrap_err();
    assert!(why.contains(&format!("\"{}...\"", "x".repeat(SHOWN))), "{why}");
}
