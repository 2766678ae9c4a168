//! Connections and quotas. Invariants: a served connection is never closed. The eviction candidate
//! comes from the class with more connections; of those past their grace period it has the lowest
//! `Activity`, and of equal ones it is idle longest. No quota is lost or granted twice. Users
//! other than root get at most half. The limits never exceed the available descriptors.

use mote_core::devlxd::quota::{Bounds, Class, Quota, Quotas};
use mote_core::http::admission::{Activity, Connected, GRACE, eviction_candidate};

use crate::prelude::*;

#[rustfmt::skip] // several in a line
const ORDER: [Activity; 7] = [
    Activity::Closing, Activity::KeptAlive, Activity::Silent, Activity::Head, Activity::Body,
    Activity::Writing, Activity::Served,
];

/// Returns whether `one` is evicted before `other` of its class.
fn before(one: &Connected, other: &Connected, now: Uptime) -> bool {
    let place = |it: &Connected| ORDER.iter().position(|kind| *kind == it.activity);
    let is_past =
        |it: &Connected| place(it) < Some(2) || now - it.since >= GRACE && it.since <= now;
    match (is_past(one), is_past(other)) {
        (true, false) => true,
        (false, true) => false,
        (true, true) if place(one) != place(other) => place(one) < place(other),
        (true, true) | (false, false) => one.since < other.since,
    }
}

fn class(is_root: bool) -> Class {
    Class::of(u32::from(!is_root))
}

fn eviction(all: &[Connected], now: Uptime) {
    let of = |class| all.iter().filter(move |one| one.class == class);
    let idle = |class| of(class).filter(|one| one.activity != Activity::Served);
    let [root, others] = [Class::Root, Class::Others];
    let more = if of(root).count() > of(others).count() { root } else { others };
    let fewer = if more == root { others } else { root };
    let expected = [more, fewer].into_iter().find(|class| idle(*class).count() > 0);
    let first = eviction_candidate(all.iter().copied().enumerate(), now);
    assert_eq!(first.map(|(_, one)| one.class), expected);
    if let Some((index, first)) = first {
        assert_eq!((all[index].activity, all[index].since), (first.activity, first.since));
        assert!(first.activity != Activity::Served);
        assert!(!idle(first.class).any(|other| before(other, &first, now)), "{index} of {all:?}");
    }
}

fn quotas(bounds: &Bounds, input: &mut Input<'_>) {
    let mut quotas = Quotas::new(bounds);
    let mut taken: Vec<(Class, Quota)> = Vec::new();
    while !input.is_empty() && taken.len() < 64 {
        let byte = input.byte();
        let one = (class(byte & 1 == 0), Quota::ALL[usize::from(byte / 4) % Quota::ALL.len()]);
        if byte & 2 == 0 {
            let of = taken.iter().filter(|other| other.1 == one.1);
            let (all, others) = (of.clone().count(), of.filter(|other| other.0 == Class::Others));
            let most = bounds.most(one.1);
            let fits = one.0 == Class::Root || others.count() < most.div_ceil(2);
            assert_eq!(quotas.take(one.0, one.1), fits && all < most, "{one:?}");
            if fits && all < most {
                taken.push(one);
            }
        } else if let Some(at) = taken.iter().position(|other| *other == one) {
            taken.swap_remove(at);
            quotas.give_back(one.0, one.1);
        }
    }
}

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let now = Uptime::from_millis(1000);
    let descriptors = usize::try_from(input.short()).unwrap();
    let bounds = Bounds::of(descriptors);
    let mut all = Vec::new();
    for _ in 0..input.byte() % 64 {
        let byte = input.byte();
        let activity = ORDER[usize::from(byte % 7)];
        let since = now - Uptime::default() - Duration::from_millis(u64::from(input.byte()) / 2);
        all.push(Connected { class: class(byte < 128), activity, since: Uptime(since) });
    }
    eviction(&all, now);
    let [queued, large, calls, polls, listeners, replies] = bounds.quotas;
    let each = [bounds.connections, queued, large, calls, polls, listeners, replies];
    assert!(each.iter().all(|bound| *bound > 0));
    let sum = bounds.connections + calls + polls + listeners;
    assert!(sum <= descriptors.max(4) * 13 / 16 + 3, "{sum} of {descriptors}");
    quotas(&bounds, &mut input);
}
