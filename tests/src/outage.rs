//! Measures how long a host gets no answer while a new agent replaces another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::prelude::*;

/// Calls the agent repeatedly, each time on a new connection: an existing one would stay with the
/// old agent.
#[derive(Debug)]
pub struct Outage {
    over: Arc<AtomicBool>,
    calls: JoinHandle<Longest>,
}

#[derive(Clone, Debug, Default)]
pub struct Longest {
    /// Longest time between two answers. A new connection takes 0.2 s of an emulated CPU.
    pub unanswered: Duration,
    pub failed: Vec<String>,
}

impl Outage {
    pub fn watch(client: Client) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let ends = over.clone();
        let calls = thread::spawn(move || {
            let (mut longest, mut answered) = (Longest::default(), Instant::now());
            while !ends.load(Ordering::Relaxed) {
                let answer = client.connect().and_then(|mut wire| wire.ask("GET", "/1.0", "", b""));
                match answer.map(|answer| answer.status) {
                    Ok(200) => {
                        longest.unanswered = longest.unanswered.max(answered.elapsed());
                        answered = Instant::now();
                    }
                    Ok(other) => longest.failed.push(format!("status {other}")),
                    Err(why) => longest.failed.push(why),
                }
                thread::sleep(Duration::from_millis(10));
            }
            longest
        });
        Self { over, calls }
    }

    pub fn longest(self) -> Longest {
        self.over.store(true, Ordering::Relaxed);
        self.calls.join().expect("the calls")
    }
}
