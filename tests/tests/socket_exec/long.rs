//! Commands with the largest possible arguments, and beyond.

use std::time::{Duration, Instant};

use mote_tests::Pair;
use mote_tests::conform::exec::{Exec, Running, plain};
use mote_tests::conform::wire::{Answer, Wire};
use serde_json::Value;

use super::start;

const LIMIT: Duration = Duration::from_secs(60);

fn words(words: &[String]) -> Value {
    let script = "for word; do printf %s \"$word\"; done";
    let head = ["sh", "-c", script, "sh"].map(str::to_owned);
    let command: Vec<_> = head.iter().chain(words).map(String::as_str).collect();
    plain(&command)
}

/// Returns 1.9 MiB of arguments of maximum length.
fn two_megabytes(piece: &str) -> Vec<String> {
    const WORD: usize = 128 * 1024 - 1;
    vec![piece.repeat(WORD / piece.len()); 1_900 * 1024 / WORD]
}

fn post(pair: &Pair, body: &str) -> Answer {
    let mut wire = pair.client().connect().unwrap();
    wire.within(LIMIT).ask("POST", "/1.0/exec", "", body.as_bytes()).unwrap()
}

fn output(pair: &Pair, request: &Value) -> Vec<u8> {
    let agent = pair.client();
    let answer = post(pair, &request.to_string());
    assert_eq!(answer.status, 202, "{}", answer.short());
    assert!(answer.body.len() < 80_000, "it is shown in {} bytes", answer.body.len());
    let made = answer.metadata();
    let operation = format!("/1.0/operations/{}", made["id"].as_str().unwrap());
    let mut running = Exec { operation, made }.connect(&agent).unwrap();
    running.stdin.barrier().unwrap();
    let output = running.out.as_mut().unwrap().within(LIMIT).output().unwrap();
    assert_eq!(running.exec.code(&agent, LIMIT), Ok(0));
    output
}

#[test]
fn passes_arguments_of_1_9_mib_and_frees_them() {
    let mut pair = start();
    output(&pair, &plain(&["true"]));
    let before = pair.memory("VmRSS");
    for piece in ["plain ", "\"plain and quoted\"\n \u{e4}"] {
        let all = two_megabytes(piece);
        let begun = Instant::now();
        assert!(output(&pair, &words(&all)) == all.concat().into_bytes(), "{piece:?}");
        println!("1.9 MiB of {piece:?}: {:.1?}", begun.elapsed());
    }
    let after = pair.memory("VmRSS");
    let peak = pair.memory("VmHWM");
    println!("long commands: {before} kB before, {after} kB after, {peak} kB at their peak");
    assert!(after <= before + 256, "{before} kB grew to {after} kB");
    // The agent holds the request and its parsed form, but no further copy.
    assert!(peak < before + 4608, "{peak} kB");
    pair.assert_alive();
}

#[test]
fn reports_the_systems_error_for_too_long_arguments() {
    let pair = start();
    let agent = pair.client();
    // First more strings than the agent has memory for, then more bytes than the kernel accepts.
    let short = vec!["x".to_owned(); 200_000];
    let long = vec!["x".repeat(1024); 2_048];
    for (many, words_of_it) in [(short, "memory"), (long, "Argument list too long")] {
        let body = words(&many).to_string();
        let made = post(&pair, &body).metadata();
        let operation = format!("/1.0/operations/{}", made["id"].as_str().unwrap());
        let _sockets = {
            let exec = Exec { operation: operation.clone(), made };
            exec.connect(&agent).unwrap()
        };
        let failed = wait_for(&pair, &operation);
        assert_eq!(failed["status"], "Failure");
        assert_eq!(failed["metadata"]["return"], -1);
        let why = failed["err"].as_str().unwrap();
        assert!(why.contains(words_of_it), "{why}");
    }
    // A long name is abbreviated.
    let running = Running::start(&agent, &plain(&[&"n".repeat(100_000)])).unwrap();
    let failed = running.exec.ended(&agent, LIMIT).unwrap();
    assert_eq!(failed["metadata"]["return"], 127);
    assert!(failed["err"].as_str().unwrap().len() < 300);
}

fn wait_for(pair: &Pair, operation: &str) -> Value {
    let agent = pair.client();
    let exec = Exec { operation: operation.to_owned(), made: Value::Null };
    exec.ended(&agent, LIMIT).unwrap()
}

#[test]
fn only_exec_accepts_more_than_a_mebibyte_within_a_limit() {
    let mut pair = start();
    // White space, so that only the length is invalid.
    let long = |length: usize| {
        let mut text = " ".repeat(length);
        text.push_str("{}");
        text
    };
    assert_eq!(post(&pair, &long(1 << 21)).short(), "400 Websockets are required for VM exec");
    let declared = |target: &str, length: usize| {
        let mut wire = pair.client().connect().unwrap();
        let head = format!("POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
        wire.send(head.as_bytes()).unwrap();
        // The agent may refuse it before everything is sent.
        for piece in long(length).as_bytes().chunks(1 << 16) {
            if wire.send(piece).is_err() {
                break;
            }
        }
        wire.within(LIMIT).answer().map(|answer| answer.short())
    };
    for (target, length) in [("/1.0/events", (1 << 20) + 1), ("/1.0/exec", (3 << 20) + 1)] {
        // The agent may close the connection before the client has read the reason.
        if let Ok(answer) = declared(target, length) {
            assert_eq!(answer, "413 Request body too long", "{target}");
        }
    }
    pair.assert_alive();
}

fn half(pair: &Pair, body: &[u8]) -> Wire {
    let mut wire = pair.client().connect().unwrap();
    let length = body.len();
    let head = format!("POST /1.0/exec HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
    wire.send(head.as_bytes()).unwrap();
    wire.within(LIMIT);
    for piece in body[..length / 2].chunks(1 << 16) {
        // The agent does not read a request that waits for memory.
        if wire.within(Duration::from_secs(1)).send(piece).is_err() {
            break;
        }
    }
    wire
}

#[test]
fn many_long_commands_share_limited_memory() {
    let mut pair = start();
    let before = pair.memory("VmRSS");
    let body = words(&two_megabytes("x")).to_string();
    let two = [half(&pair, body.as_bytes()), half(&pair, body.as_bytes())];
    let begun = Instant::now();
    let mut third = pair.client().connect().unwrap();
    let head =
        format!("POST /1.0/exec HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    third.send(head.as_bytes()).unwrap();
    // The agent waits for memory once the request turns out to be long.
    third.send(&body.as_bytes()[..70_000]).unwrap();
    let answer = third.within(LIMIT).answer().unwrap().short();
    assert_eq!(answer, "503 Too many long requests at once");
    assert!(begun.elapsed() > Duration::from_secs(2), "it did not wait for its turn");
    let peak = pair.memory("VmHWM");
    assert!(peak < before + 4608, "{before} kB grew to {peak} kB");
    // A short request does not wait.
    assert_eq!(output(&pair, &plain(&["echo", "hi"])), b"hi\n");
    drop(two);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(post(&pair, &body).status, 202, "there is room again");
    pair.assert_alive();
}
