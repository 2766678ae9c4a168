//! Operations that guests start and may wait for. The latest are kept in memory; as with real
//! hosts, they end with the daemon.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use mote_client::common::random::uuid;

/// Number of operations kept.
const MAX_KEPT: usize = 256;
/// Longest wait.
const MAX_WAIT: Duration = Duration::from_secs(300);

/// All of them.
#[derive(Default)]
pub struct Operations {
    all: Mutex<VecDeque<Operation>>,
    changed: Condvar,
}

struct Operation {
    id: String,
    owner: String,
    ends: Instant,
    cancelled: bool,
}

/// Why an operation gives no answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// The guest has no operation with that id.
    NotFound,
    /// It has ended.
    NotRunning,
    /// It has not ended in time.
    TooLong,
}

impl Operations {
    /// Starts an operation that takes `time`.
    pub fn begin(&self, owner: &str, time: Duration) -> Result<Value> {
        let operation = Operation {
            id: uuid()?,
            owner: owner.to_owned(),
            ends: Instant::now() + time,
            cancelled: false,
        };
        let shown = operation.to_json(Instant::now());
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == MAX_KEPT {
            all.pop_front();
        }
        all.push_back(operation);
        Ok(shown)
    }

    /// Waits for its end, at most `limit`.
    pub fn wait(&self, owner: &str, id: &str, limit: Option<Duration>) -> Result<Value, Refused> {
        let last = Instant::now() + limit.unwrap_or(MAX_WAIT).min(MAX_WAIT);
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let found = all.iter().find(|one| one.id == id && one.owner == owner);
            let operation = found.ok_or(Refused::NotFound)?;
            let now = Instant::now();
            if operation.is_over(now) {
                return Ok(operation.to_json(now));
            }
            if now >= last {
                return Err(Refused::TooLong);
            }
            let pause = operation.ends.min(last).saturating_duration_since(now);
            all = self.changed.wait_timeout(all, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Cancels it.
    pub fn cancel(&self, owner: &str, id: &str) -> Result<Value, Refused> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.iter_mut().find(|one| one.id == id && one.owner == owner);
        let operation = found.ok_or(Refused::NotFound)?;
        let now = Instant::now();
        if operation.is_over(now) {
            return Err(Refused::NotRunning);
        }
        operation.cancelled = true;
        self.changed.notify_all();
        Ok(operation.to_json(now))
    }
}

impl Operation {
    fn is_over(&self, now: Instant) -> bool {
        self.cancelled || now >= self.ends
    }

    /// Returns a `DevLXDOperation` (P§5.3).
    fn to_json(&self, now: Instant) -> Value {
        let (status, code) = match (self.cancelled, now >= self.ends) {
            (true, _) => ("Cancelled", 401),
            (false, true) => ("Success", 200),
            (false, false) => ("Running", 103),
        };
        json!({"id": self.id, "status": status, "status_code": code, "err": ""})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(operation: &Value) -> String {
        operation["id"].as_str().unwrap().to_owned()
    }

    #[test]
    fn only_the_owner_can_wait_for_an_operation() {
        let operations = Operations::default();
        let begun = operations.begin("a", Duration::from_secs(60)).unwrap();
        assert_eq!(begun["status_code"], 103);
        let long = id(&begun);
        assert_eq!(operations.wait("b", &long, None), Err(Refused::NotFound));
        let at_once = Some(Duration::from_millis(1));
        assert_eq!(operations.wait("a", &long, at_once), Err(Refused::TooLong));
        let short = id(&operations.begin("a", Duration::from_millis(80)).unwrap());
        assert_eq!(operations.wait("a", &short, None).unwrap()["status_code"], 200);
        assert_eq!(operations.cancel("a", &short), Err(Refused::NotRunning));
    }

    #[test]
    fn a_cancelled_operation_wakes_its_waiters() {
        let operations = std::sync::Arc::new(Operations::default());
        let id = id(&operations.begin("a", Duration::from_secs(60)).unwrap());
        let waiting = std::thread::spawn({
            let (operations, id) = (operations.clone(), id.clone());
            move || operations.wait("a", &id, None)
        });
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(operations.cancel("a", &id).unwrap()["status"], "Cancelled");
        assert_eq!(waiting.join().unwrap().unwrap()["status_code"], 401);
    }

    #[test]
    fn limits_the_number_of_operations() {
        let operations = Operations::default();
        let first = id(&operations.begin("a", Duration::ZERO).unwrap());
        for _ in 0..MAX_KEPT {
            operations.begin("a", Duration::ZERO).unwrap();
        }
        assert_eq!(operations.wait("a", &first, None), Err(Refused::NotFound));
    }
}
