//! Tickets, file handles, log limits and retries under arbitrary operations. Invariants: each
//! behaves like a simple model, and nothing waits without a reason.

use std::collections::HashMap;

use mote_core::dial::{Failure, Retry, Tries};
use mote_core::rate::LogLimit;
use mote_core::sftp::handles::Handles;
use mote_core::sftp::request::Handle;
use mote_core::tls::tickets::{Earner, Tickets, Turn};

use crate::prelude::*;

fn tickets(mut input: Input<'_>) {
    let mut tickets = Tickets::default();
    let mut kept: Vec<u8> = Vec::new();
    let mut earners: Vec<Earner> = Vec::new();
    while !input.is_empty() {
        let value = input.byte();
        match value % 4 {
            0 => {
                tickets.put(value);
                kept.push(value);
                let over = kept.len().saturating_sub(8);
                kept.drain(..over);
            }
            1 => assert_eq!(tickets.take(), kept.pop()),
            2 => match tickets.turn() {
                Turn::Go => {}
                Turn::Earn(earner) => {
                    assert!(kept.is_empty() && earners.len() < 2);
                    earners.push(earner);
                }
                // Another call is about to get a ticket or to fail.
                Turn::Wait => assert!(kept.is_empty() && earners.len() == 2),
            },
            _ => {
                if let Some(earner) = earners.pop() {
                    tickets.earned(earner, value & 4 == 0);
                }
            }
        }
        assert!(kept.is_empty() || tickets.turn() == Turn::Go);
    }
}

fn handles(mut input: Input<'_>) {
    let most = usize::from(input.byte() % 9);
    let mut handles = Handles::new(most);
    let (mut open, mut closed) = (HashMap::new(), Vec::new());
    let mut count = 0u32;
    while !input.is_empty() {
        let value = input.byte();
        let known = open.keys().nth(usize::from(value / 4) % open.len().max(1)).copied();
        match (value % 4, known) {
            (0 | 1, _) => {
                count += 1;
                let room = open.len() < most;
                assert_eq!(handles.has_room(), room);
                match handles.add(count) {
                    Some(Handle(handle)) => assert!(room && open.insert(handle, count).is_none()),
                    None => assert!(!room),
                }
            }
            (2, Some(handle)) => {
                assert_eq!(handles.take(Handle(handle)), open.remove(&handle));
                closed.push(handle);
            }
            _ => {
                let any = input.long();
                assert_eq!(handles.get(Handle(any)), open.get(&any));
            }
        }
        assert!(open.iter().all(|(handle, value)| handles.get(Handle(*handle)) == Some(value)));
        assert!(closed.iter().rev().take(16).all(|handle| handles.get(Handle(*handle)).is_none()));
    }
}

fn messages(mut input: Input<'_>) {
    let pause = u64::from(input.byte()) + 1;
    let mut limit = LogLimit::new(Duration::from_millis(pause));
    let (mut now, mut seen, mut told) = (0, 0, 0);
    let mut logged: Vec<u64> = Vec::new();
    let mut last = None;
    while !input.is_empty() {
        now += u64::from(input.byte() / 8);
        seen += 1;
        last = limit.report(Uptime::from_millis(now));
        if let Some(suppressed) = last {
            told += 1 + suppressed;
            logged.push(now);
            assert_eq!(told, seen, "each one is counted");
        }
    }
    assert!(logged.is_sorted_by(|one, next| one + pause <= *next));
    assert!(seen == 0 || !logged.is_empty() && (last.is_some() || told < seen));
}

fn tries(mut input: Input<'_>) {
    let retry = if input.byte().is_multiple_of(2) { Retry::Dial } else { Retry::Patient };
    let mut tries = Tries::new(retry);
    let mut timeouts = 0;
    for made in 1.. {
        let how = [Failure::Refused, Failure::TimedOut, Failure::Other];
        let how = how[usize::from(input.byte() % 3)];
        timeouts += u32::from(how == Failure::TimedOut);
        let is_final = how == Failure::Refused && retry == Retry::Dial;
        let expected = made < 10 && timeouts < 2 && !is_final;
        assert_eq!(tries.failed(how).is_some(), expected);
        let true = expected else { return };
    }
}

pub fn run(data: &[u8]) {
    let mut input = Input(&data[..data.len().min(300)]);
    match input.byte() % 4 {
        0 => tickets(input),
        1 => handles(input),
        2 => messages(input),
        _ => tries(input),
    }
}
