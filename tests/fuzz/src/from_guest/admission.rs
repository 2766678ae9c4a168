//! Which connection gives way, among arbitrary ones. What must hold: never one that is being served; one past its
//! grace before all that are not; of those past it the first activity in order, then the longest resting; and
//! bounds fit the descriptors they are for.

use core::time::Duration;

use mote_core::http::admission::{Activity, Bounds, Connected, GRACE, first_to_go};
use mote_core::time::Uptime;

use crate::input::Input;

const ORDER: [Activity; 7] = [
    Activity::Closing,
    Activity::Idle,
    Activity::Silent,
    Activity::Head,
    Activity::Body,
    Activity::Writing,
    Activity::Served,
];

/// Whether the one is to go before the other.
fn before(one: &Connected, other: &Connected, now: Uptime) -> bool {
    let is_past = |it: &Connected| now - it.since >= GRACE && it.since <= now;
    let place = |it: &Connected| ORDER.iter().position(|kind| *kind == it.activity);
    match (is_past(one), is_past(other)) {
        (true, false) => true,
        (false, true) => false,
        (true, true) if place(one) != place(other) => place(one) < place(other),
        (true, true) | (false, false) => one.since < other.since,
    }
}

/// One input.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let now = Uptime::from_millis(1000);
    let descriptors = usize::try_from(input.short()).unwrap();
    let mut all = Vec::new();
    while !input.is_empty() && all.len() < 64 {
        let activity = ORDER[usize::from(input.byte() % 7)];
        let since = now - Uptime::default() - Duration::from_millis(u64::from(input.byte()) / 2);
        all.push(Connected { activity, since: Uptime(since) });
    }
    let first = first_to_go(&mut all.iter().copied().enumerate(), now);
    let resting = || all.iter().filter(|one| one.activity != Activity::Served);
    match first {
        None => assert_eq!(resting().count(), 0),
        Some((index, first)) => {
            assert_eq!((all[index].activity, all[index].since), (first.activity, first.since));
            assert!(first.activity != Activity::Served);
            assert!(!resting().any(|other| before(other, &first, now)), "{index} of {all:?}");
        }
    }
    let Bounds { connections, line, large, answers, long, listeners } = Bounds::of(descriptors);
    assert!([connections, line, large, answers, long, listeners].iter().all(|bound| *bound > 0));
    assert!(connections + answers + long + listeners <= descriptors.max(4) * 13 / 16 + 3);
}
