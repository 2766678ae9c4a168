//! Calls to the host, and retries of the connection (P§3.2, P§5.3).

#[cfg(feature = "alloc")]
use alloc::{string::String, vec::Vec};
use core::time::Duration;

/// Number of attempts per call (P§3.2).
const TRIES: u32 = 10;
/// Pause between attempts (P§3.2).
const PAUSE: Duration = Duration::from_millis(100);
/// Pause between attempts for meta-data, which boot scripts may request before the host is up
/// (P§5.3).
const PATIENT_PAUSE: Duration = Duration::from_millis(500);
/// Number of attempts that may time out: each takes 2 s, and a client waits for the answer.
const TIMEOUTS: u32 = 2;

/// Time limit for the host's answer to an ordinary call.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    pub body: Option<&'a [u8]>,
    /// Further headers, forwarded from the guest.
    pub extra: &'a [(&'a str, &'a str)],
    /// Time limit for the answer's head.
    pub timeout: Duration,
    pub retry: Retry,
}

impl<'a> Call<'a> {
    pub fn get(target: &'a str, timeout: Duration) -> Self {
        Self { method: "GET", target, body: None, extra: &[], timeout, retry: Retry::Dial }
    }
}

#[cfg(feature = "alloc")]
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub etag: Option<String>,
    /// The body; empty if it is longer than allowed.
    pub body: Vec<u8>,
    /// False if the body is longer than allowed.
    pub is_whole: bool,
}

#[cfg(feature = "alloc")]
pub fn find<'h>(headers: &'h [(String, String)], wanted: &str) -> Option<&'h str> {
    let found = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
    found.map(|(_, value)| &**value)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Ten attempts, but a refusal is final (P§3.2).
    Dial,
    /// For meta-data: ten attempts 500 ms apart, even after refusals (P§5.3).
    Patient,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No process listens on that port: vsock answers with a reset.
    Refused,
    TimedOut,
    /// Any other error of connect(2).
    Other,
}

#[derive(Debug)]
pub struct Tries {
    retry: Retry,
    made: u32,
    timeouts: u32,
}

impl Tries {
    /// Creates the state of a call before its first attempt.
    pub fn new(retry: Retry) -> Self {
        Self { retry, made: 0, timeouts: 0 }
    }

    /// Counts a failed attempt. Returns the pause before the next one; `None` if it was the last.
    pub fn failed(&mut self, how: Failure) -> Option<Duration> {
        self.made += 1;
        self.timeouts += u32::from(how == Failure::TimedOut);
        let (pause, refusal_is_final) = match self.retry {
            Retry::Dial => (PAUSE, true),
            Retry::Patient => (PATIENT_PAUSE, false),
        };
        let last = self.made >= TRIES
            || self.timeouts >= TIMEOUTS
            || (refusal_is_final && how == Failure::Refused);
        (!last).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_as_often_as_the_caller_and_the_failure_allow() {
        for (retry, how, expected) in [
            (Retry::Dial, Failure::Other, &[PAUSE; 9][..]),
            (Retry::Dial, Failure::Refused, &[]),
            (Retry::Dial, Failure::TimedOut, &[PAUSE]),
            (Retry::Patient, Failure::Other, &[PATIENT_PAUSE; 9]),
            (Retry::Patient, Failure::Refused, &[PATIENT_PAUSE; 9]),
            (Retry::Patient, Failure::TimedOut, &[PATIENT_PAUSE]),
        ] {
            let mut tries = Tries::new(retry);
            let pauses: Vec<_> = core::iter::from_fn(|| tries.failed(how)).take(100).collect();
            assert_eq!(pauses, expected, "{retry:?} {how:?}");
            // Timeouts count even if they are not consecutive.
            let mut tries = Tries::new(retry);
            let mixed = [Failure::TimedOut, Failure::Other, Failure::Other];
            assert!(mixed.into_iter().all(|how| tries.failed(how).is_some()));
            assert_eq!(tries.failed(Failure::TimedOut), None);
        }
    }
}
