//! Repeated calls to an agent that has reported itself. On a busy machine a call may be late or cut
//! off. Repeats such a call until the run's time limit, if it is safe to repeat; after each late
//! call the limit is doubled.

use std::io::{self, ErrorKind};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;

use mote_client::agent::call_failure::{CallFailure, FailedCall};
use mote_client::net::stream::Limit;

/// Limit for the first call.
const FIRST: Duration = Duration::from_secs(5);
/// Interval of the calls.
const AGAIN: Duration = Duration::from_millis(50);
/// How long an agent that has reported itself may refuse connections or use an old certificate.
const SETTLES: Duration = Duration::from_secs(10);

/// The time for repeated calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryPolicy {
    begun: Instant,
    until: Instant,
}

impl RetryPolicy {
    /// Returns calls until `end`, or a little longer for an agent that reports itself in the last
    /// second.
    pub(crate) fn until(end: Instant) -> Self {
        let begun = Instant::now();
        Self { begun, until: end.max(begun + SETTLES) }
    }

    pub(crate) fn of(duration: Duration) -> Self {
        Self::until(Instant::now() + duration)
    }

    /// Returns the limit for a call that is made only once.
    pub(crate) fn whole(self) -> Limit {
        Limit::Until(self.until.max(Instant::now() + FIRST))
    }

    /// Calls until it succeeds, fails permanently, or the time is over.
    pub(crate) fn ask<T>(
        self,
        mut call: impl FnMut(Limit) -> Result<T>,
        may_be_repeated: fn(&anyhow::Error) -> bool,
    ) -> Result<T> {
        let mut time = FIRST;
        loop {
            let error = match call(Limit::Until(self.until.min(Instant::now() + time))) {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let settles = FailedCall::of(&error).is_some() && self.begun.elapsed() < SETTLES;
            if !(settles || may_be_repeated(&error)) || Instant::now() >= self.until {
                return Err(error);
            }
            let failed = FailedCall::of(&error);
            if failed.is_some_and(|failed| failed.failure == CallFailure::Slow) {
                time *= 2;
            }
            sleep(AGAIN);
        }
    }
}

/// Returns whether a repeated call may succeed: the agent has not refused it.
pub(crate) fn is_passing(error: &anyhow::Error) -> bool {
    use ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, TimedOut, UnexpectedEof,
    };
    let is_cut = |cause: &io::Error| {
        let kind = cause.kind();
        matches!(kind, BrokenPipe | ConnectionAborted | ConnectionRefused | ConnectionReset)
            || matches!(kind, TimedOut | UnexpectedEof)
    };
    match FailedCall::of(error).map(|failed| failed.failure) {
        Some(
            CallFailure::AgentsCertificate
            | CallFailure::DeviceStopped
            | CallFailure::HostsCertificate,
        ) => false,
        Some(_) => true,
        None => error.chain().filter_map(|cause| cause.downcast_ref()).any(is_cut),
    }
}

/// Returns whether the agent has not received the request, because there was no connection. Any
/// other request may have started a command.
pub(crate) fn is_unsent(error: &anyhow::Error) -> bool {
    let unsent = [
        CallFailure::NoAnswer,
        CallFailure::NoGuest,
        CallFailure::Refused,
        CallFailure::Unreachable,
    ];
    FailedCall::of(error).is_some_and(|failed| unsent.contains(&failed.failure))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;
    use mote_client::instance::{Flavour, Instance};

    fn of(failure: CallFailure) -> anyhow::Error {
        let instance = Instance::sample(Flavour::Lxd, &[]);
        FailedCall::of_failure(anyhow!("x"), &instance, failure).context("events")
    }

    #[test]
    fn retries_only_calls_that_cannot_have_arrived() {
        for (error, passing, unsent) in [
            (of(CallFailure::Slow), true, false),
            (of(CallFailure::Refused), true, true),
            (of(CallFailure::NoAnswer), true, true),
            (of(CallFailure::HostsCertificate), false, false),
            (io::Error::from(ErrorKind::ConnectionReset).into(), true, false),
            (
                anyhow::Error::from(io::Error::from(ErrorKind::UnexpectedEof)).context("x"),
                true,
                false,
            ),
            (anyhow!("status 403: no"), false, false),
        ] {
            assert_eq!((is_passing(&error), is_unsent(&error)), (passing, unsent), "{error:#}");
        }
    }

    #[test]
    fn extends_the_limit_after_a_timeout() {
        let mut limits = Vec::new();
        let retry = RetryPolicy::of(Duration::from_secs(100));
        let answer = retry.ask(
            |limit| {
                let Limit::Until(end) = limit else { return Err(anyhow!("no end")) };
                limits.push(end.saturating_duration_since(Instant::now()).as_secs_f64());
                match limits.len() {
                    1 | 3 => Err(of(CallFailure::Slow)),
                    2 => Err(of(CallFailure::Refused)),
                    _ => Ok(limits.len()),
                }
            },
            is_passing,
        );
        assert_eq!(answer.unwrap(), 4);
        for (limit, expected) in limits.iter().zip([5.0, 10.0, 10.0, 20.0]) {
            assert!((expected - 1.0..=expected).contains(limit), "{limits:?}");
        }
    }

    #[test]
    fn does_not_retry_final_or_late_failures() {
        let asked = |error: fn() -> anyhow::Error, begun: Instant, until: Instant| {
            let mut count = 0;
            let retry = RetryPolicy { begun, until };
            let failed = retry.ask(
                |_| -> Result<()> {
                    count += 1;
                    Err(error())
                },
                is_passing,
            );
            assert!(failed.is_err());
            count
        };
        let now = Instant::now();
        let later = now + Duration::from_secs(100);
        assert_eq!(asked(|| anyhow!("status 403: no"), now, later), 1);
        assert_eq!(asked(|| of(CallFailure::Slow), now, now), 1);
        let long_ago = now.checked_sub(SETTLES).unwrap();
        assert_eq!(asked(|| of(CallFailure::HostsCertificate), long_ago, later), 1);
    }
}
